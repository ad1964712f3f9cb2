"""A module that counts its calls in a Python number."""

import torch
from torch import nn


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        self.step += 1  # planted: value
        return self.layer(x) * min(1.0, self.step / 100)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("step", torch.zeros(()))
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        self.step += 1
        return self.layer(x) * (self.step / 100).clamp(max=1.0)


def make():
    return Counting(), *((torch.ones(4, 8),) for _ in range(4))


def healed():
    return Mended(), *((torch.ones(4, 8),) for _ in range(4))
