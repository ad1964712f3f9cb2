# verdicts: slower
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        for _ in range(3):
            total = torch.relu(x + y)
        return total
