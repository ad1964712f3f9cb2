# verdicts: faster tie slower
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        centered = x - mean
        scale = torch.rsqrt((centered * centered).mean(-1, keepdim=True) + self.norm.eps)
        return centered * scale * self.norm.weight + self.norm.bias
