"""Models with which nothing is wrong, large enough for a call to be worth its guards."""

import torch
from torch import nn
from torch.nn import functional


class Norm(nn.Module):
    """Works in single precision on purpose, and returns to what it was given."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


class Layer(nn.Module):
    def __init__(self, size=256, heads=4):
        super().__init__()
        self.heads, self.before, self.after = heads, Norm(size), nn.LayerNorm(size)
        self.joint, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.wide, self.narrow = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x):
        batch, length, size = x.shape
        parts = self.joint(self.before(x)).view(batch, length, 3, self.heads, size // self.heads)
        seen = functional.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4).unbind(0))
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, size))
        return x + self.narrow(functional.gelu(self.wide(self.after(x))))


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def mlp():
    return nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Dropout(), nn.Linear(512, 512)).eval(), (
        torch.ones(256, 512),
    )


def layer():
    return Layer().eval(), (torch.randn(2, 128, 256),)


def layer_in_bfloat16():
    return Layer().eval().to(torch.bfloat16), (torch.randn(2, 128, 256).to(torch.bfloat16),)


def convolution():
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3)).eval()
    return net, (torch.randn(4, 3, 48, 48),)


def lengths_marked():
    calls = [(torch.randn(2, length, 256),) for length in (96, 112, 128)]
    for (x,) in calls:
        torch._dynamo.mark_dynamic(x, 1)
    return Layer().eval(), *calls


def gradient_by_hand():
    return lambda x: Double.apply(x @ x).relu(), (torch.randn(512, 512, requires_grad=True),)


def mixed_precision():
    net = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512)).eval()

    def model(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return net(x)

    return model, (torch.randn(256, 512),)


def training():
    return nn.Sequential(nn.Linear(512, 512), nn.Dropout(0.1), nn.Linear(512, 512)), (torch.randn(256, 512),)


EVERYONE = (mlp, layer, layer_in_bfloat16, convolution, lengths_marked, gradient_by_hand, mixed_precision, training)
