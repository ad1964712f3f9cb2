# verdicts: wrong
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, wide, out):
        super().__init__()
        self.linear = nn.Linear(wide, out)

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(x), approximate="tanh")
