"""Sentences of any length."""

import torch


def model(x):  # planted: size
    return (x * 2).softmax(-1).sum(0)


def make():
    return model, *((torch.ones(length, 8),) for length in (5, 6, 7))


def healed():
    calls = [(torch.ones(length, 8),) for length in (5, 6, 7)]
    for (x,) in calls:
        torch._dynamo.mark_dynamic(x, 0)
    return model, *calls
