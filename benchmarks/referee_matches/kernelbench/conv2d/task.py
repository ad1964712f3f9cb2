import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels, out, size):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, size)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(4, 8, 48, 48)]


def get_init_inputs():
    return [8, 16, 3]
