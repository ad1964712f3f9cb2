"""Several sizes of a dynamic graph, at which its candidates are raced together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch

from tunewright.lazy_logging import LazyLogger
from tunewright.torch.candidate import Launch
from tunewright.torch.captured import CapturedGraph
from tunewright.torch.diagnostics.numerics import clone_tensors, tensors_in
from tunewright.torch.inductor import graphs
from tunewright.torch.inductor.graphs import CompiledGraph
from tunewright.torch.oracle import REFUSALS, ExpectedTensors
from tunewright.torch.tensor_sets import CallArguments

log = LazyLogger(__name__)

FACTORS = (1.0, 0.25, 4.0)
"""What the sizes of the call are multiplied by, within the range of each."""

MAX_LAUNCHES = 8
"""How often the smallest sizes are launched for each launch of the largest, so that all count about the same."""


class SizedCall(NamedTuple):
    """The inputs of a graph at one size, and how often it is launched there."""

    values: tuple[Any, ...]
    launches: int


class SeveralSizes:
    """A dynamic graph with inputs of several sizes: one call after another, judged and timed as one.

    The sizes are those of the call, a quarter and four times of it, as far as the graph's range and conditions allow.
    Each is launched so often that all take about the same time.
    """

    def __init__(self, captured: CapturedGraph) -> None:
        self._captured, self._count = captured, len(captured.values)
        self.calls = _sized_calls(captured)

    @property
    def call(self) -> CallArguments:
        """All inputs as arguments of candidates."""
        captured, offsets = self._captured, range(0, self._count * len(self.calls), self._count)
        return CallArguments(
            tuple(chain.from_iterable(call.values for call in self.calls)),
            frozenset(offset + i for offset in offsets for i in captured.weights),
            frozenset(offset + i for offset in offsets for i in captured.written),
        )

    def expect(self, values: Sequence[Any]) -> ExpectedTensors:
        """Returns what is right for these inputs: what is returned at each size, then what is changed at each."""
        found = [self._captured.expect(part) for part in self._split(values)]
        changed = len(self._captured.written)
        ends = [len(one.results) - changed for one in found]
        allowed = found[0].allowed
        for one in found[1:]:
            allowed = allowed.or_larger(one.allowed)

        def in_order(parts: Sequence[list[Any]]) -> list[Any]:
            returned = chain.from_iterable(part[:end] for part, end in zip(parts, ends, strict=True))
            return [*returned, *chain.from_iterable(part[end:] for part, end in zip(parts, ends, strict=True))]

        return ExpectedTensors(
            in_order([one.results for one in found]), in_order([one.dtypes for one in found]), allowed
        )

    def bind(self, compiled: CompiledGraph, *values: Any) -> Launch:
        """Returns a launch at all sizes."""
        parts = [(part, call.launches) for part, call in zip(self._split(values), self.calls, strict=True)]

        def launch() -> Any:
            results = []
            for part, launches in parts:
                for _ in range(launches):
                    result = compiled(*part)
                results += tensors_in(result)
            return results

        return launch

    def _split(self, values: Sequence[Any]) -> list[Sequence[Any]]:
        return [values[i : i + self._count] for i in range(0, len(values), self._count)]


def _sized_calls(captured: CapturedGraph) -> list[SizedCall]:
    """Returns the calls, that of the captured sizes first."""
    symbols = graphs.SymbolicSizes(captured.inputs, captured.placeholders)
    found = {tuple(symbols.hints.values()): captured.values}
    for factor in FACTORS[1:]:
        sizes = symbols.scaled(factor)
        values = _resized(captured, symbols, sizes) if sizes else None
        if values is not None:
            found.setdefault(tuple(sizes.values()), values)
    largest = max(map(sum, found))
    most = 1 if captured.written else MAX_LAUNCHES
    return [
        SizedCall(values, max(1, min(most, round(largest / max(1, sum(sizes)))))) for sizes, values in found.items()
    ]


def _resized(captured: CapturedGraph, symbols: graphs.SymbolicSizes, sizes: dict[Any, int]) -> tuple[Any, ...] | None:
    """Returns the inputs at other sizes, with their contents repeated or cut; None if the graph does not run there."""
    values = []
    for i, value in enumerate(captured.values):
        wanted = symbols.evaluate(i, sizes)
        if wanted is None:
            values.append(value)
        elif not isinstance(value, torch.Tensor):
            values.append(wanted)
        elif value.is_contiguous():
            values.append(_repeated(value, wanted))
        else:
            return None
    try:
        captured.graph(*clone_tensors(values))
    except REFUSALS as error:
        log.info("a size at which the graph does not run is not raced: %s", error)
        return None
    return tuple(values)


def _repeated(tensor: Any, shape: Sequence[int]) -> Any:
    for dim, size in enumerate(shape):
        if size != tensor.shape[dim]:
            tensor = tensor.index_select(dim, torch.arange(size) % tensor.shape[dim])
    return tensor.contiguous()
