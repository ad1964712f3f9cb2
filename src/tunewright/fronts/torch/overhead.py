"""Overhead: what a call costs before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from tunewright.backends.inductor import adapter
from tunewright.backends.inductor.adapter import METRICS
from tunewright.fronts.torch.pace import paces
from tunewright.fronts.torch.patient import Patient, Visit, quietly
from tunewright.report.diagnosis import Cause, Symptom

MUCH = 0.25
"""The share of a call from which on its overhead is worth a word."""

EAGER, COMPILED, FIXED = "eager", "compiled", "guards and Python"


class Astray(RuntimeError):
    """A model whose control flow follows its results does something else when they are only remembered."""


class Hollow:
    """A model whose graphs compute in its first call, and only remember after that."""

    def __init__(self, patient: Patient) -> None:
        self._arguments = patient.calls[-1]
        self._runs, self._most = 0, 0
        self._model = torch.compile(patient.fresh(), backend=adapter.capturing(self._graph), isolate_recompiles=True)
        self._model(*self._arguments)
        self._most = self._runs

    def __call__(self) -> Any:
        self._runs = 0
        return self._model(*self._arguments)

    def _graph(self, graph: Any, _: Sequence[Any]) -> Callable[..., Any]:
        kept: list[Any] = []

        def run(*given: Any) -> Any:
            self._runs += 1
            if self._most and self._runs > self._most:  # a loop that waits for its results might never end
                raise Astray("which graphs run depends on what they compute")
            if not self._most or not kept:
                kept[:] = [graph(*given)]
            return kept[0]

        return run


def times(patient: Patient, seen: Visit, *, hollow: bool) -> dict[str, float]:
    """Seconds of the last call: run by Python, compiled, and with every graph replaced by its remembered result."""
    last, eager = patient.calls[-1], patient.fresh()
    launches: dict[str, Callable[[], Any]] = {EAGER: lambda: eager(*last), COMPILED: lambda: seen.compiled(*last)}
    with quietly():
        return paces({**launches, FIXED: Hollow(patient)} if hollow else launches)


def shares(seen: Visit, taken: Mapping[str, float]) -> tuple[float, float]:
    """What one of the pieces a model is compiled in costs a call, and what compiling it loses against Python."""
    pieces = len({one.frame.partition("/")[0] for one in seen.records if one.name == METRICS}) or 1
    return taken.get(FIXED, 0.0) / pieces, max(0.0, taken.get(COMPILED, 0.0) - taken.get(EAGER, 0.0))


def symptoms(patient: Patient, taken: Mapping[str, float]) -> Iterator[Symptom]:
    """A call that mostly checks its guards."""
    share = taken[FIXED] / taken[COMPILED] if {FIXED, COMPILED} <= taken.keys() else 0.0
    if share > MUCH:
        wrong = f"at least {min(share, 1):.0%} of a call goes into guards and Python, whatever the model computes"
        remedy = "give it more work in a call (a larger batch), or ship it with AOTInductor, which has no guards"
        yield Symptom(Cause.SMALL, patient.place(), wrong, remedy, each=min(taken[FIXED], taken[COMPILED]))
