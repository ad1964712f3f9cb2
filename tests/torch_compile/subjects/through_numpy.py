"""A detour through a function of numpy that PyTorch does not have."""

import numpy as np
import torch

KNOTS = np.arange(3.0)


def broken(x):
    bent = np.interp(x.numpy(), KNOTS, KNOTS**2)  # planted: numpy
    return torch.from_numpy(bent) * 2


def mended(x):
    left = x.floor().clamp(0, 1)
    return (left**2 + (x.clamp(0, 2) - left) * (2 * left + 1)) * 2


def make():
    return broken, (torch.linspace(0, 2, 8, dtype=torch.float64),)


def healed():
    return mended, (torch.linspace(0, 2, 8, dtype=torch.float64),)
