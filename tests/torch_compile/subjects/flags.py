"""A mode given as a word, each of which is another program."""

import torch


def model(x, mode):
    if mode == "double":  # planted: value
        return x * 2
    return x + 1


def always_both(x, doubled):
    return torch.where(doubled, x * 2, x + 1)


def make():
    return model, (torch.ones(8), "double"), (torch.ones(8), "single"), (torch.ones(8), "none")


def healed():
    return always_both, *((torch.ones(8), torch.tensor(doubled)) for doubled in (True, False, False))
