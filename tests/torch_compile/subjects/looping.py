"""A break inside a loop: the whole function is left to Python."""

import torch
from torch import nn


class Looping(nn.Module):
    def __init__(self, spoken):
        super().__init__()
        self.layers, self.spoken = nn.ModuleList(nn.Linear(8, 8) for _ in range(3)), spoken

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if self.spoken:
                print(number, end="\r")  # planted: print
        return x


def make():
    return Looping(True), (torch.ones(4, 8),)


def healed():
    return Looping(False), (torch.ones(4, 8),)
