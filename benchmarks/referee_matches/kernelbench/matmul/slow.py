# verdicts: slower
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        return torch.cat([a[i : i + 1] @ b for i in range(a.shape[0])])
