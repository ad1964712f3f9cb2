"""A gradient written by hand that counts its calls on the terminal."""

import torch


class Loud(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        print(end="")  # planted: autograd function
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Silent(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def broken(x):
    return Loud.apply(x) + 1


def mended(x):
    return Silent.apply(x) + 1


def make():
    return broken, (torch.ones(8, requires_grad=True),)


def healed():
    return mended, (torch.ones(8, requires_grad=True),)
