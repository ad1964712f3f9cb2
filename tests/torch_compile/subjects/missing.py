"""A pass that calls itself something else each time it is asked."""

from itertools import count

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass

NUMBERS = count()


class Restless(CustomGraphPass):
    def __call__(self, graph):
        pass

    def uuid(self):
        return f"pass {next(NUMBERS)}"


class Steady(CustomGraphPass):
    def __call__(self, graph):
        pass

    def uuid(self):
        return "pass 0"


def model(x):  # planted: cache miss
    return x.cos() * 3


def make():
    return torch.compile(model, options={"post_grad_custom_post_pass": Restless()}), (torch.ones(64, 64),)


def healed():
    return torch.compile(model, options={"post_grad_custom_post_pass": Steady()}), (torch.ones(64, 64),)
