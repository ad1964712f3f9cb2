# verdicts: faster tie slower
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, wide, inner):
        super().__init__()
        self.first, self.second = nn.Linear(wide, inner), nn.Linear(inner, wide)

    def forward(self, x):
        y = torch.addmm(self.first.bias, x, self.first.weight.t()).clamp_(min=0)
        return torch.addmm(self.second.bias, y, self.second.weight.t())
