"""Captured graphs of training: candidates are timed and checked by their results and gradients together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from tunewright.lazy_logging import LazyLogger
from tunewright.torch.captured import NEEDS_GRADIENTS, CapturedGraph
from tunewright.torch.diagnostics.numerics import clone_tensors
from tunewright.torch.inductor import graphs
from tunewright.torch.inductor.graphs import CompiledGraph

log = LazyLogger(__name__)


class TrainingGraph(CapturedGraph):
    """A graph that is called with gradients. A launch is its forward pass and the gradients of its inputs."""

    training = True

    @cached_property
    def learned(self) -> tuple[int, ...]:
        """The numbers of the inputs that need gradients."""
        tensors = ((i, value) for i, value in enumerate(self.values) if isinstance(value, torch.Tensor))
        return tuple(i for i, tensor in tensors if tensor.requires_grad)

    def _gradient_problem(self) -> str:
        if any(parameter.requires_grad for parameter in self.graph.parameters()):  # they are no inputs
            return NEEDS_GRADIENTS
        return f"{NEEDS_GRADIENTS}, and its sizes may change" if self.dynamic else ""

    def finish(self, compiled: CompiledGraph) -> CompiledGraph:
        """Returns a compiled graph after a step, which compiles its backward pass."""
        with graphs.measured_apart():
            self.launch(compiled)(*clone_tensors(self.values))
        return compiled

    def launch(self, graph: CompiledGraph) -> CompiledGraph:
        """Returns what is timed and checked of a graph: it returns its results and the gradients of its inputs."""
        given: list[Any] = []  # made once, since this is timed

        def step(*values: Any) -> tuple[Any, Sequence[Any]]:
            with torch.enable_grad():
                own = [
                    value.detach().requires_grad_() if i in self.learned else value for i, value in enumerate(values)
                ]
                returned = graph(*own)
                roots = [one for one in returned if isinstance(one, torch.Tensor) and one.requires_grad]
                if not given:
                    given.extend(map(_output_gradient, roots))
                return returned, torch.autograd.grad(roots, [own[i] for i in self.learned], given, allow_unused=True)

        return step


def capture(graph: Any, inputs: Sequence[Any], *, training: bool, numerics: Sequence[str] = ()) -> CapturedGraph:
    """Returns a graph as it was captured; with `training`, one that records gradients is a training graph.

    `numerics` are the reduced precisions that are allowed without gradients.
    """
    tensors = (value for value in inputs if isinstance(value, torch.Tensor))
    records = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if not (training and records):
        return CapturedGraph(graph, inputs, numerics)
    log.warning(
        "a graph is taken for training: gradients count, and weights are not frozen; for inference, call eval() of the "
        "model and torch.no_grad() first"
    )
    return TrainingGraph(graph, inputs)


def _output_gradient(result: Any) -> Any:
    """Returns a gradient of the loss by a result: always the same numbers, no two neighbors of which are equal."""
    return torch.linspace(0.5, 1.5, result.numel(), dtype=torch.float64).reshape(result.shape).to(result.dtype)
