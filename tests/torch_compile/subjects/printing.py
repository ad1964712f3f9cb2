"""A line of progress on the terminal."""

import torch
from torch import nn


class Printing(nn.Module):
    def __init__(self, spoken):
        super().__init__()
        self.first, self.second, self.spoken = nn.Linear(16, 16), nn.Linear(16, 16), spoken

    def forward(self, x):
        x = self.first(x)
        if self.spoken:
            print("after the first layer", end="\r")  # planted: print
        return self.second(x).relu()


def make():
    return Printing(True), (torch.ones(4, 16),)


def healed():
    return Printing(False), (torch.ones(4, 16),)
