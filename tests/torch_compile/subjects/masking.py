"""A result whose size depends on what a tensor holds."""

import torch


def broken(x):
    kept = x[x > 0]  # planted: shape
    return kept.sum() + 1


def mended(x):
    return torch.where(x > 0, x, 0).sum() + 1


def make():
    return broken, (torch.arange(-4.0, 4.0),)


def healed():
    return mended, (torch.arange(-4.0, 4.0),)
