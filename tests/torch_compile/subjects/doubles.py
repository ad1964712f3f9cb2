"""A table that numpy made in double precision."""

import numpy as np
import torch
from torch import nn


class Positions(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.register_buffer("table", torch.from_numpy(np.sin(np.arange(64, dtype=np.float64)).astype(dtype)))

    def forward(self, x):
        return self.layer(x) * self.table  # planted: promotion


def make():
    return Positions(np.float64), (torch.ones(32, 64),)


def healed():
    return Positions(np.float32), (torch.ones(32, 64),)
