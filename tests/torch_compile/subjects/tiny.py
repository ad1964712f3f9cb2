"""A model too small for a call to be worth its guards."""

import torch
from torch import nn


class Tiny(nn.Module):  # planted: small batch
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x


def make():
    return Tiny().requires_grad_(False), (torch.ones(1, 4),)


def healed():
    return Tiny().requires_grad_(False), (torch.ones(200_000, 4),)
