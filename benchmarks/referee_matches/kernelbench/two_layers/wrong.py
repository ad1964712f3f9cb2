# verdicts: wrong
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, wide, inner):
        super().__init__()
        self.first, self.second = nn.Linear(wide, inner), nn.Linear(inner, wide)

    def forward(self, x):
        return self.second(self.first(x))
