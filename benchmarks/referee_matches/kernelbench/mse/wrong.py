# verdicts: wrong
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        return (x - y).abs().mean(dim=1)
