"""Casts: where numbers change their precision for nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import torch

from tunewright.backends.inductor import adapter
from tunewright.fronts.torch.breaks import innermost
from tunewright.fronts.torch.pace import paces
from tunewright.fronts.torch.patient import Patient, quietly
from tunewright.report.diagnosis import Cause, Place, Symptom

_CASTS = frozenset({"to", "float", "double", "half", "bfloat16", "type", "type_as"})

_REMEDIES = {
    Cause.PROMOTION: "make both of one dtype where they are made; double precision often comes from numpy",
    Cause.PARAMETER: "cast it once, when the model is made",
    Cause.ROUND_TRIP: "drop both casts, or do there what was to be done in between",
}


class Cast(NamedTuple):
    """One change of precision in a graph: what kind, where, from and to what, and of how many numbers."""

    cause: Cause
    place: Place
    before: Any
    after: Any
    shape: tuple[int, ...]


def symptoms(patient: Patient) -> Iterator[Symptom]:
    """Every needless change of precision, with the time that the cast alone takes."""
    found: dict[Cast, None] = {}
    for graph, inputs in graphs(patient):
        found |= dict.fromkeys(_casts(graph, inputs))
    for cast in (one._replace(place=patient.own(one.place)) for one in found):
        wrong = f"{_short(cast.before)} becomes {_short(cast.after)} in every call, {list(cast.shape)}"
        yield Symptom(cast.cause, cast.place, wrong, _REMEDIES[cast.cause], each=_taken(cast))


def graphs(patient: Patient) -> list[tuple[Any, Sequence[Any]]]:
    """The graphs that a model is captured in, with the inputs of each."""
    noted: list[tuple[Any, Sequence[Any]]] = []

    def note(graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        noted.append((graph, inputs))
        run: Callable[..., Any] = graph.forward
        return run

    torch.compiler.reset()
    with quietly():
        compiled = torch.compile(patient.fresh(), backend=adapter.capturing(note), dynamic=patient.how.get("dynamic"))
        compiled(*patient.calls[0])
    return noted


def _casts(graph: Any, inputs: Sequence[Any]) -> Iterator[Cast]:
    placed = [node for node in graph.graph.nodes if node.op == "placeholder"]
    kept = {
        node
        for node, value in zip(placed, inputs, strict=False)
        if isinstance(value, torch.nn.Parameter) or "_buffers_" in node.name
    }
    for node in graph.graph.nodes:
        given = [one for one in node.all_input_nodes if _floating(one)]
        if not _floating(node) or not given:
            continue
        before, after, place = _dtype(given[0]), _dtype(node), _place(node)
        if _is_cast(node):
            if given[0] in kept and before != after:
                yield Cast(Cause.PARAMETER, place, before, after, _shape(node))
            inner = given[0].all_input_nodes[:1] if _is_cast(given[0]) else []
            if inner and _floating(inner[0]) and _dtype(inner[0]) == after != before and len(given[0].users) == 1:
                yield Cast(Cause.ROUND_TRIP, place, before, after, _shape(node))
        else:
            sized = [one for one in given if _shape(one)]
            narrow = next((one for one in sized if _dtype(one) != after), None)
            # Where autocast is at work the narrower dtype wins, which is what was asked for.
            if narrow is not None and len(sized) > 1 and reduce(torch.promote_types, map(_dtype, sized)) == after:
                yield Cast(Cause.PROMOTION, place, _dtype(narrow), after, _shape(narrow))


def _is_cast(node: Any) -> bool:
    named = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return node.op in ("call_method", "call_function") and named in _CASTS


def _floating(node: Any) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _dtype(node: Any) -> Any:
    return node.meta["example_value"].dtype


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in node.meta["example_value"].shape)


def _place(node: Any) -> Place:
    return innermost(str(node.meta.get("stack_trace") or ""))


def _short(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _taken(cast: Cast) -> float:
    """The time that the cast takes by itself: at most what is lost, since it may be fused with its neighbours."""
    value = torch.ones(cast.shape, dtype=cast.before)
    return paces({"cast": lambda: value.to(cast.after)}, rounds=5)["cast"]
