# verdicts: slower
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, wide, out):
        super().__init__()
        self.linear = nn.Linear(wide, out)

    def forward(self, x):
        for _ in range(4):
            y = torch.nn.functional.gelu(self.linear(x))
        return y
