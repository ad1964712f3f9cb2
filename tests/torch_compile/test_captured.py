"""A captured graph that is more than a function of its inputs is left to PyTorch."""

import pytest
import torch
from torch import nn

from tunewright.torch.captured import CapturedGraph


class Tracer(torch.fx.Tracer):
    """One that keeps what is written to buffers in the graph."""

    proxy_buffer_attributes = True


class Counting(nn.Module):
    """A model that counts its calls in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        return x + self.calls


class Normalizing(nn.Module):
    """A model with a module that changes its own buffers, with results that do not depend on them."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(x)


@pytest.mark.parametrize("model", [Counting(), Normalizing()], ids=["a buffer", "the buffers of a module"])
def test_a_graph_that_changes_tensors_of_its_own_is_left_to_pytorch(model) -> None:
    with torch.no_grad():
        traced = torch.fx.GraphModule(model, Tracer().trace(model))
        graph = CapturedGraph(traced, [torch.randn(3, 3)])
        assert "tensors of its own" in graph.why_untunable


def test_a_graph_that_only_reads_tensors_of_its_own_can_be_tuned() -> None:
    with torch.no_grad():
        graph = CapturedGraph(torch.fx.symbolic_trace(Normalizing().eval()), [torch.randn(3, 3)])
        assert graph.why_untunable == ""
