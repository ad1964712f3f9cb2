"""A variance as the difference of two large numbers."""

import torch
from torch import nn


class Spread(nn.Module):  # planted: numerics
    def forward(self, x):
        return (x * x).mean(-1) - x.mean(-1) ** 2


class Stable(nn.Module):
    def forward(self, x):
        return x.var(-1, correction=0)


class Net(nn.Module):
    def __init__(self, spread):
        super().__init__()
        self.scale, self.spread = nn.Linear(64, 64), spread
        nn.init.eye_(self.scale.weight)
        nn.init.constant_(self.scale.bias, 30.0)

    def forward(self, x):
        return self.spread(self.scale(x))


def _x():
    return torch.linspace(-1, 1, 32 * 64).reshape(32, 64)


def make():
    return Net(Spread()), (_x(),)


def healed():
    return Net(Stable()), (_x(),)
