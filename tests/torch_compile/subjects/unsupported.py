"""A call into C that cannot be traced."""

import zlib

import torch

NAME = b"layer"


def broken(x):
    seed = zlib.crc32(NAME)  # planted: unsupported call
    return (x + 1) * (seed % 7)


SEED = zlib.crc32(NAME)


def mended(x):
    return (x + 1) * (SEED % 7)


def make():
    return broken, (torch.ones(8),)


def healed():
    return mended, (torch.ones(8),)
