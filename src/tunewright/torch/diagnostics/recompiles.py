"""Recompilations: which guard failed, what compiling again took, and what dynamic shapes would cost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tunewright.report import formatting
from tunewright.torch.diagnostics.call_times import time_calls
from tunewright.torch.diagnostics.subject import Observation, Subject, observe, suppress_output
from tunewright.torch.diagnostics.trace_events import (
    CompileMetrics,
    TraceEvent,
    classify,
    group_symptoms,
    stack_locations,
)  # fmt: skip
from tunewright.torch.inductor import adapter
from tunewright.torch.inductor.adapter import RECOMPILED, Record
from tunewright.torch.report.diagnosis import Cause, CodeLocation, Symptom

_SIZE = re.compile(r"tensor '(.+?)' size mismatch at index (\d+)")

_PATTERNS = (
    (Cause.SIZE, r"size mismatch at index|stride mismatch at index|\.size\(\)|\.stride\(\)"),
    (Cause.DTYPE, r"dtype mismatch"),
    (Cause.GRADIENT, r"requires_grad mismatch|grad_mode|GLOBAL_STATE|dispatch key set mismatch"),
    (Cause.VALUE, r" == "),
)

REMEDIES = {
    Cause.DTYPE: "cast arguments to one dtype before the call",
    Cause.GRADIENT: "always call it in the same mode: under `torch.no_grad()` or not, with arguments that require "
    "gradients or not",
    Cause.VALUE: "keep what changes in a tensor (an argument, or a buffer of the module): each value of a Python "
    "object is another program",
    Cause.GUARD: "make this the same in every call",
}


class DynamicShapeCost(NamedTuple):
    """What dynamic shapes cost: how many times as long a call takes, and the recompilations that remain."""

    ratio: float
    recompilations: int


def symptoms(subject: Subject, observation: Observation) -> Iterator[Symptom]:
    """Yields every guard that failed once, with the time its recompilations took."""
    metrics = CompileMetrics(observation.records)
    events = [
        _read_recompilation(subject, record, metrics) for record in observation.records if record.name == RECOMPILED
    ]
    dynamic = measure_dynamic(subject) if any(event.cause is Cause.SIZE for event in events) else None

    def make_symptom(group: Sequence[TraceEvent]) -> Symptom:
        first, limit = group[0], adapter.recompile_limit()
        wrong = f"compiled again {formatting.counted(len(group), 'time')}, since a guard failed: {first.reason}"
        if len(group) >= limit:
            wrong += f"; after {limit} times PyTorch gives up, and Python runs it"
        seconds = metrics.seconds({event.frame for event in group})
        return Symptom(first.cause, first.location, wrong, _remedy(first, dynamic), once=seconds)

    return group_symptoms(events, make_symptom)


def _read_recompilation(subject: Subject, record: Record, metrics: CompileMetrics) -> TraceEvent:
    guard = adapter.recompile_reasons(record)[0].partition(": ")[2]
    expression = re.sub(r"\s+", " ", guard.partition("#")[0].partition("\n")[0]).strip()
    without_values = re.sub(r"(==|expected|actual) *('[^']*'|[\w.-]+)", r"\1", expression)
    location = subject.own_location(_guard_location(guard, record, metrics))
    cause = classify(guard, _PATTERNS, Cause.GUARD)
    return TraceEvent(cause, location, expression, record.frame, guard=without_values)


def _guard_location(guard: str, record: Record, metrics: CompileMetrics) -> CodeLocation:
    """Returns the line that made the guard, else where the function begins."""
    if locations := stack_locations(guard):
        return locations[-1]
    return metrics.location(record.frame, f"{record.frame.partition('/')[0]}/0")


def _remedy(event: TraceEvent, dynamic: DynamicShapeCost | None) -> str:
    if event.cause is not Cause.SIZE:
        return REMEDIES[event.cause]
    size = _SIZE.search(event.reason)
    mark = f"`torch._dynamo.mark_dynamic({size.group(1)}, {size.group(2)})` before the call, or " if size else ""
    measured = ""
    if dynamic is not None:
        count = dynamic.recompilations
        left = formatting.counted(count, "recompilation") if count else "no recompilation"
        ratio = formatting.ratio(dynamic.ratio)
        measured = f"; measured here with dynamic=True: {ratio} the time of a call, {left} left"
    return f"{mark}`torch.compile(dynamic=True)`{measured}"


def measure_dynamic(subject: Subject) -> DynamicShapeCost:
    """Returns what dynamic shapes cost a call, against code compiled for its exact sizes."""
    call = subject.calls[-1]
    dynamic = observe(subject, isolated=True, dynamic=True)
    exact = subject.isolated(dynamic=False)
    with suppress_output():
        times = time_calls({"exact": lambda: call.run(exact), "dynamic": lambda: call.run(dynamic.compiled)})
    recompilations = sum(record.name == RECOMPILED for record in dynamic.records)
    return DynamicShapeCost(times["dynamic"] / times["exact"], recompilations)
