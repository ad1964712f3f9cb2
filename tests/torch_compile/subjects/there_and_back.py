"""A tensor made narrower and at once wide again."""

import torch


def broken(x):
    return (x * 2).to(torch.bfloat16).float() + 1  # planted: round trip


def mended(x):
    return x * 2 + 1


def make():
    return broken, (torch.ones(64, 64),)


def healed():
    return mended, (torch.ones(64, 64),)
