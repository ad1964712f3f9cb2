# verdicts: slower
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, wide, inner):
        super().__init__()
        self.first, self.second = nn.Linear(wide, inner), nn.Linear(inner, wide)

    def forward(self, x):
        return torch.stack([self.second(torch.relu(self.first(row))) for row in x])
