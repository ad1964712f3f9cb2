"""Some callers bring doubles."""

import torch


def model(x):  # planted: dtype
    return x.sin() + 1


def make():
    return model, (torch.ones(8),), (torch.ones(8, dtype=torch.float64),)


def healed():
    return model, (torch.ones(8),), (torch.ones(8, dtype=torch.float64).float(),)
