"""Overhead of a call: guards and Python, before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tunewright.torch.diagnostics.call_times import time_calls
from tunewright.torch.diagnostics.subject import Observation, Subject, suppress_output
from tunewright.torch.inductor import adapter
from tunewright.torch.inductor.adapter import METRICS
from tunewright.torch.report.diagnosis import Cause, Symptom

REPORTED_SHARE = 0.25
"""The share of a call above which its overhead is reported."""

EAGER, COMPILED, FIXED = "eager", "compiled", "guards and Python"


class ControlFlowDiverged(RuntimeError):
    """Raised when replayed results change which graphs run."""


class ReplayedModel:
    """A model whose graphs compute in the first call, and replay their results after that."""

    def __init__(self, subject: Subject) -> None:
        self._call = subject.calls[-1]
        self._runs, self._max_runs = 0, 0
        backend = adapter.capture_backend(self._replay)
        self._model = adapter.compile_isolated(subject.fresh(), backend=backend)
        self._call.run(self._model)
        self._max_runs = self._runs

    def __call__(self) -> Any:
        self._runs = 0
        return self._call.run(self._model)

    def _replay(self, graph: Any, _: Sequence[Any]) -> Callable[..., Any]:
        results: list[Any] = []

        def run(*arguments: Any) -> Any:
            self._runs += 1
            if self._max_runs and self._runs > self._max_runs:  # a loop on its results might never end
                raise ControlFlowDiverged("which graphs run depends on what they compute")
            if not self._max_runs or not results:
                results[:] = [graph(*arguments)]
            return results[0]

        return run


def measure_times(subject: Subject, observation: Observation, *, fixed: bool) -> dict[str, float]:
    """Returns the seconds of the last call: eager, compiled, and with `fixed`, with every graph's result replayed."""
    call, eager = subject.calls[-1], subject.fresh()
    launches: dict[str, Callable[[], Any]] = {
        EAGER: lambda: call.run(eager),
        COMPILED: lambda: call.run(observation.compiled),
    }
    with suppress_output():
        return time_calls({**launches, FIXED: ReplayedModel(subject)} if fixed else launches)


def break_costs(observation: Observation, times: Mapping[str, float]) -> tuple[float, float]:
    """Returns what each compiled piece costs a call, and what a compiled call loses against an eager one."""
    frames = {record.frame.partition("/")[0] for record in observation.records if record.name == METRICS}
    loss = max(0.0, times.get(COMPILED, 0.0) - times.get(EAGER, 0.0))
    return times.get(FIXED, 0.0) / (len(frames) or 1), loss


def symptoms(subject: Subject, times: Mapping[str, float]) -> Iterator[Symptom]:
    """Yields a symptom if a call spends much of its time on guards."""
    share = times[FIXED] / times[COMPILED] if {FIXED, COMPILED} <= times.keys() else 0.0
    if share > REPORTED_SHARE:
        wrong = f"at least {min(share, 1):.0%} of a call goes into guards and Python, whatever the model computes"
        remedy = "give it more work in a call (a larger batch), or ship it with AOTInductor, which has no guards"
        yield Symptom(Cause.SMALL, subject.location(), wrong, remedy, each=min(times[FIXED], times[COMPILED]))
