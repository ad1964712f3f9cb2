# verdicts: faster tie slower
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x.t().cumsum(0).t().contiguous()
