"""Causes of several kinds, two of them in a layer inside a layer."""

import torch
from torch import nn


class Inner(nn.Module):
    def forward(self, x):
        kept = x.nonzero()  # planted: shape
        return x + kept.shape[0]


class Healthy(nn.Module):
    def forward(self, x):
        return x + (x != 0).sum()


class Outer(nn.Module):
    def __init__(self, inner, table):
        super().__init__()
        self.inner, self.layer = inner, nn.Linear(16, 16)
        self.register_buffer("table", table)

    def forward(self, x):
        x = self.inner(self.layer(x))
        return x * self.table  # planted: promotion


def make():
    return Outer(Inner(), torch.ones(16, dtype=torch.float64)).requires_grad_(False), (torch.ones(4, 16),)


def healed():
    return Outer(Healthy(), torch.ones(16)).requires_grad_(False), (torch.ones(4, 16),)
