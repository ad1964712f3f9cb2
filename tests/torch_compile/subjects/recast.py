"""Weights kept in one precision and cast to another in every call."""

import torch
from torch import nn


class Recast(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64, 64), requires_grad=False)

    def forward(self, x):
        return x @ self.weight.to(torch.bfloat16)  # planted: parameter cast


class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64, 64).to(torch.bfloat16), requires_grad=False)

    def forward(self, x):
        return x @ self.weight


def make():
    return Recast(), (torch.ones(8, 64).to(torch.bfloat16),)


def healed():
    return Kept(), (torch.ones(8, 64).to(torch.bfloat16),)
