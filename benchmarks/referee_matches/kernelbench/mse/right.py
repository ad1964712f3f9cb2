# verdicts: faster tie slower
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        d = x - y
        return torch.einsum("ij,ij->i", d, d) / x.shape[1]
