"""An option that `torch.compile` takes without a word, and that changes no code, but turns caches off."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):  # follows: cache bypass
        return self.layer(x).relu()


def _model():
    return Model().eval().requires_grad_(False)


def make():
    options = {"freezing": True}  # planted: inert option
    return torch.compile(_model(), options=options), (torch.ones(32, 64),)


def healed():
    torch._inductor.config.freezing = True
    return torch.compile(_model()), (torch.ones(32, 64),)
