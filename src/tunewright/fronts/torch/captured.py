"""Captured: a graph as Dynamo hands it over, with the inputs of the call at hand; what it computes, and with what."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch

from tunewright.backends.host import digest
from tunewright.backends.inductor import graphs
from tunewright.fronts.torch.numerics import cloned, double, doubled, error, flat

Compiled = Callable[..., Any]

WORSE = 4
"""How many times as wrong as Python's a result may be and still be right."""

_REFUSALS = (RuntimeError, TypeError, ValueError, NotImplementedError)


class Captured:
    """A graph, and its inputs in this call; weights are among them."""

    def __init__(self, graph: Any, inputs: Sequence[Any]) -> None:
        self.graph, self.inputs = graph, tuple(inputs)
        self.values = tuple(graphs.hint(value) for value in inputs)

    @property
    def places(self) -> list[Any]:
        """The nodes that stand for inputs."""
        return [node for node in self.graph.graph.nodes if node.op == "placeholder"]

    @cached_property
    def untouchable(self) -> str:
        """Why nothing is chosen here and PyTorch's own way is kept; empty if something may be."""
        tensors = [value for value in self.values if isinstance(value, torch.Tensor)]
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*tensors, *self.graph.parameters())):
            return "gradients are wanted"
        if any(tensor.device.type != "cpu" for tensor in tensors):
            return "it is not on a CPU"
        if any(type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in tensors):
            return "there are tensors of another kind"
        try:
            one, other = (self._seeded(seed) for seed in (1, 2))
        except _REFUSALS as problem:
            return f"it cannot be run by itself: {type(problem).__name__}"
        alike = len(one) == len(other) and all(map(torch.equal, one, other))
        return "" if alike else "its results are random, or not numbers"

    def _seeded(self, seed: int) -> list[Any]:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            return flat(self.graph(*cloned(self.values)))

    @cached_property
    def written(self) -> frozenset[int]:
        """The inputs that the graph writes to, by their numbers."""
        given = cloned(self.values)
        before = [_version(value) for value in given]
        self.graph(*given)
        return frozenset(i for i, value in enumerate(given) if _version(value) != before[i])

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """The inputs that are weights and stay as they are, by their numbers."""
        known = zip(self.places, self.values, strict=True)
        static = [i for i, (node, value) in enumerate(known) if graphs.is_static(node, value)]
        return tuple(i for i in static if i not in self.written)

    @cached_property
    def products(self) -> int:
        """How many matrix products there are."""
        names = [str(getattr(node.target, "__name__", node.target)) for node in self.graph.graph.nodes]
        return sum(name.rpartition(".")[2] in _PRODUCTS for name in names)

    @cached_property
    def source(self) -> str:
        """What is computed, as a digest: names that depend on where the model stands do not count, nor do weights."""
        number = {node: f"%{i}" for i, node in enumerate(self.graph.graph.nodes)}
        lines = []
        for node in self.graph.graph.nodes:
            known = node.op in ("placeholder", "get_attr")
            target = "" if known else getattr(node.target, "__qualname__", None) or str(node.target)
            held = self._held(node.target) if node.op == "get_attr" else ""
            told = torch.fx.node.map_arg((node.args, node.kwargs), lambda one: _Named(number[one]))
            lines.append(f"{node.op} {target} {held} {'' if known else told}")
        static = [f"{i} {spelt(self.values[i])}" for i in self.weights]
        return digest(*lines, *static)

    def _held(self, path: str) -> str:
        value: Any = self.graph
        for name in path.split("."):
            value = getattr(value, name)
        return spelt(value)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The inputs that are no weights, as text; a size that may change is no number."""
        free = [i for i in range(len(self.inputs)) if i not in self.weights]
        return tuple(spelt(self.inputs[i]) for i in free)

    @property
    def dynamic(self) -> bool:
        """Whether it is compiled for sizes that may change."""
        return any(value is not given for value, given in zip(self.values, self.inputs, strict=True))

    @cached_property
    def right(self) -> tuple[list[Any], float]:
        """The right results, in double precision where the graph can, and how wrong they may be as a share of size."""
        eager = flat(self.graph(*cloned(self.values)))
        kinds = [one.dtype for one in eager if one.dtype.is_floating_point]
        coarse = max((float(torch.finfo(kind).eps) for kind in kinds), default=0.0)
        try:
            best = flat(doubled(self.graph)(*map(double, cloned(self.values))))
        except _REFUSALS:
            best = [double(one) for one in eager]
        return best, max(WORSE * error(eager, best), coarse)

    def objection(self, results: Any) -> str | None:
        """What is wrong with results, in words; None if they are right."""
        right, most = self.right
        got = flat(results)
        if len(got) != len(right) or any(one.shape != other.shape for one, other in zip(got, right, strict=True)):
            return "its results have another shape"
        whole = [(one, other) for one, other in zip(got, right, strict=True) if not other.dtype.is_floating_point]
        if not all(torch.equal(one, other) for one, other in whole):
            return "its results differ"
        off = error(got, right)
        return None if off <= most else f"its results are off by {off:.1e} of their size, where {most:.1e} is allowed"

    def frozen(self) -> Frozen:
        """The graph with its weights in it."""
        return Frozen(self)


class Frozen:
    """A graph that holds its weights, and which inputs are left; it knows when a weight has changed since."""

    def __init__(self, captured: Captured) -> None:
        self.module = torch.fx.GraphModule(captured.graph, copy.deepcopy(captured.graph.graph))
        nodes = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        for i in captured.weights:
            name, value = f"frozen_{i}", captured.values[i]
            if isinstance(value, torch.nn.Parameter):
                self.module.register_parameter(name, value)
            else:
                self.module.register_buffer(name, value)
            with self.module.graph.inserting_before(nodes[i]):
                held = self.module.graph.get_attr(name)
            held.meta.update(nodes[i].meta)
            nodes[i].replace_all_uses_with(held)
            self.module.graph.erase_node(nodes[i])
        self.module.recompile()
        self.free = tuple(i for i in range(len(captured.inputs)) if i not in captured.weights)
        held = [(i, captured.values[i]) for i in captured.weights]
        # Tensors of inference mode do not tell how often they were written to; that they are the same can be seen.
        self._watched = [(i, value, None if value.is_inference() else value._version) for i, value in held]

    def adapted(self, compiled: Compiled, again: Callable[[Sequence[Any]], Compiled]) -> Compiled:
        """What was compiled from this, called with all inputs; where a weight has changed, compiled `again`."""
        watched, free = self._watched, self.free
        fresh: list[Compiled] = []

        def call(*arguments: Any) -> Any:  # in every call of a model: each step here is paid for
            if fresh:
                return fresh[0](*arguments)
            for i, value, seen in watched:
                if value is not arguments[i] or (seen is not None and value._version != seen):
                    fresh.append(again(arguments))
                    return fresh[0](*arguments)
            return compiled(*[arguments[i] for i in free])

        return call


class _Named(str):
    """A node in a graph's text: without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_PRODUCTS = frozenset({"linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "einsum", "__matmul__"})


def _version(value: Any) -> int:
    """How often a tensor was written to; tensors of inference mode do not tell."""
    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else 0


def spelt(value: Any) -> str:
    """An argument as text: dtype, sizes and strides of a tensor."""
    if not isinstance(value, torch.Tensor):
        return f"{type(value).__name__}={value}" if isinstance(value, bool | int | float | str) else "size"
    sizes = ",".join(map(str, value.shape))
    text = f"{str(value.dtype).removeprefix('torch.')}[{sizes}]"
    return text if value.is_contiguous() else f"{text}:{','.join(map(str, value.stride()))}"
