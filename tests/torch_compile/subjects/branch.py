"""A branch on what a tensor holds."""

import torch


def broken(x):
    if x.sum() > 0:  # planted: branch
        return x * 2
    return x - 1


def mended(x):
    return torch.where(x.sum() > 0, x * 2, x - 1)


def make():
    return broken, (torch.ones(8),)


def healed():
    return mended, (torch.ones(8),)
