import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, wide, inner):
        super().__init__()
        self.first, self.second = nn.Linear(wide, inner), nn.Linear(inner, wide)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return [256, 512]
