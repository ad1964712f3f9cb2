"""One function called with and without gradients."""

import torch


def model(x):  # planted: grad mode
    return x.cos() * 2


def make():
    return model, (torch.ones(8, requires_grad=True),), (torch.ones(8),)


def healed():
    return model, (torch.ones(8),), (torch.ones(8),)
