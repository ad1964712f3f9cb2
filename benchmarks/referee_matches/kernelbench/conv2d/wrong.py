# verdicts: wrong
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, out, size):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, size)

    def forward(self, x):
        return self.conv(x).relu()
