"""Needless casts: where numbers change their precision for nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import torch

from tunewright.torch.diagnostics.call_times import time_calls
from tunewright.torch.diagnostics.subject import Subject, suppress_output
from tunewright.torch.diagnostics.trace_events import innermost_location
from tunewright.torch.inductor import adapter
from tunewright.torch.report.diagnosis import Cause, CodeLocation, Symptom

_CASTS = frozenset({"to", "float", "double", "half", "bfloat16", "type", "type_as"})

_REMEDIES = {
    Cause.PROMOTION: "give both one dtype where they are made; double precision often comes from numpy",
    Cause.PARAMETER: "cast it once, when the model is made",
    Cause.ROUND_TRIP: "drop both casts, or compute between them what needs the other precision",
}


class DtypeCast(NamedTuple):
    """One change of precision in a graph: its cause and location, both dtypes, and the shape of the tensor."""

    cause: Cause
    location: CodeLocation
    before: Any
    after: Any
    shape: tuple[int, ...]


def symptoms(subject: Subject) -> Iterator[Symptom]:
    """Yields every needless change of precision, with the time that the cast alone takes."""
    casts: dict[DtypeCast, None] = {}
    for graph, inputs in capture_graphs(subject):
        casts |= dict.fromkeys(_casts(graph, inputs))
    for cast in casts:
        wrong = f"{_short(cast.before)} becomes {_short(cast.after)} in every call, {list(cast.shape)}"
        location = subject.own_location(cast.location)
        yield Symptom(cast.cause, location, wrong, _REMEDIES[cast.cause], each=_seconds(cast))


def capture_graphs(subject: Subject) -> list[tuple[Any, Sequence[Any]]]:
    """Returns the graphs that a model is captured in, with the inputs of each."""
    graphs: list[tuple[Any, Sequence[Any]]] = []

    def capture(graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        graphs.append((graph, inputs))
        run: Callable[..., Any] = graph.forward
        return run

    torch.compiler.reset()
    with suppress_output():
        backend = adapter.capture_backend(capture)
        compiled = torch.compile(subject.fresh(), backend=backend, dynamic=subject.options.get("dynamic"))
        subject.calls[0].run(compiled)
    return graphs


def _casts(graph: Any, inputs: Sequence[Any]) -> Iterator[DtypeCast]:
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    weights = {
        node
        for node, value in zip(placeholders, inputs, strict=False)
        if isinstance(value, torch.nn.Parameter) or "_buffers_" in node.name
    }
    for node in graph.graph.nodes:
        operands = [operand for operand in node.all_input_nodes if _is_floating(operand)]
        if not _is_floating(node) or not operands:
            continue
        before, after, location = _dtype(operands[0]), _dtype(node), _location(node)
        if _is_cast(node):
            if operands[0] in weights and before != after:
                yield DtypeCast(Cause.PARAMETER, location, before, after, _shape(node))
            inner = operands[0].all_input_nodes[:1] if _is_cast(operands[0]) else []
            if inner and _is_floating(inner[0]) and _dtype(inner[0]) == after != before and len(operands[0].users) == 1:
                yield DtypeCast(Cause.ROUND_TRIP, location, before, after, _shape(node))
        else:
            sized = [operand for operand in operands if _shape(operand)]
            narrow = next((operand for operand in sized if _dtype(operand) != after), None)
            # Under autocast the narrower dtype wins, as the user asked for.
            if narrow is not None and len(sized) > 1 and reduce(torch.promote_types, map(_dtype, sized)) == after:
                yield DtypeCast(Cause.PROMOTION, location, _dtype(narrow), after, _shape(narrow))


def _is_cast(node: Any) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return node.op in ("call_method", "call_function") and name in _CASTS


def _is_floating(node: Any) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _dtype(node: Any) -> Any:
    return node.meta["example_value"].dtype


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in node.meta["example_value"].shape)


def _location(node: Any) -> CodeLocation:
    return innermost_location(str(node.meta.get("stack_trace") or ""))


def _short(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _seconds(cast: DtypeCast) -> float:
    """Returns the time that the cast takes by itself, which is the most it costs, since it may be fused."""
    value = torch.ones(cast.shape, dtype=cast.before)
    return time_calls({"cast": lambda: value.to(cast.after)}, rounds=5)["cast"]
