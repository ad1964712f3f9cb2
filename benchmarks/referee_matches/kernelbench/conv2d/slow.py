# verdicts: slower
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, out, size):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, size)

    def forward(self, x):
        for _ in range(4):
            y = self.conv(x)
        return y
