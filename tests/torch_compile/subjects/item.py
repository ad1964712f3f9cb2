"""A scale fetched out of a tensor as a number."""

import torch


def broken(x):
    largest = x.abs().max().item()  # planted: item
    return x / largest


def mended(x):
    return x / x.abs().max()


def make():
    return broken, (torch.arange(1.0, 9.0),)


def healed():
    return mended, (torch.arange(1.0, 9.0),)
