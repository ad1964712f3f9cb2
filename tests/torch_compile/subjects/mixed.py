"""Three causes in one function."""

import torch


def broken(x):
    x = x * 2
    print(end="")  # planted: print
    if x.mean() > 0:  # planted: branch
        x = x + 1
    return x * x.max().item()  # planted: item


def mended(x):
    x = x * 2
    x = torch.where(x.mean() > 0, x + 1, x)
    return x * x.max()


def make():
    return broken, (torch.ones(8),)


def healed():
    return mended, (torch.ones(8),)
