"""A function that somebody once took out of compilation."""

import torch


@torch.compiler.disable
def normed(x):
    return x / x.norm()


def broken(x):
    return normed(x + 1) * 2  # planted: disabled


def mended(x):
    x = x + 1
    return x / x.norm() * 2


def make():
    return broken, (torch.ones(8),)


def healed():
    return mended, (torch.ones(8),)
