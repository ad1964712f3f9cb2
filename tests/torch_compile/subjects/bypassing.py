"""A pass over the graph that caches know nothing of."""

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass


def model(x):  # planted: cache bypass
    return x.sin() * 2


def look(graph):
    """A pass that changes nothing."""


class Named(CustomGraphPass):
    def __call__(self, graph):
        look(graph)

    def uuid(self):
        return "look, version 1"


def make():
    return torch.compile(model, options={"post_grad_custom_post_pass": look}), (torch.ones(64, 64),)


def healed():
    return torch.compile(model, options={"post_grad_custom_post_pass": Named()}), (torch.ones(64, 64),)
