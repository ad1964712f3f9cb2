"""Metrics: what is shown of a cell: numbers for machines, words for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tunewright.bench.doubt import estimate, ratios
from tunewright.bench.run import Bout, Cell, Run
from tunewright.measure.stats import interval
from tunewright.model.trial import median
from tunewright.report import words


class Figures(msgspec.Struct, frozen=True):
    """The numbers of a cell; None where there is none: it failed, or nobody knows how much it computes.

    `speedup` is how many times the baseline's speed it has, from the rounds in which both ran, with a 95 % interval.
    `roofline` is the share of what this machine can do at best.
    """

    latency: float | None = None
    latency_low: float | None = None
    latency_high: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    tflops: float | None = None
    gbps: float | None = None
    accuracy: float | None = None
    compile_time: float | None = None
    roofline: float | None = None


def figures(run: Run, bout: Bout, cell: Cell, baseline: str) -> Figures:
    """The numbers of one cell."""
    every = [sample for sitting in cell.samples for sample in sitting]
    if not every:
        return Figures()
    seconds, (low, high) = median(every), interval(every)
    least, flops = run.roof.seconds(bout.work, bout.call.dtype), bout.work.flops
    found = Figures(
        seconds,
        low,
        high,
        tflops=flops / seconds / 1e12 if flops else None,
        gbps=bout.work.bytes / seconds / 1e9,
        accuracy=cell.error,
        compile_time=cell.build_seconds,
        roofline=least / seconds if least else None,
    )
    first = bout.cell(baseline)
    if first is None or not first.samples:
        return found
    speed = estimate(ratios(first.samples, cell.samples)).bounds() if first is not cell else (1.0, 1.0, 1.0)
    return msgspec.structs.replace(found, speedup=speed[0], speedup_low=speed[1], speedup_high=speed[2])


def _latency(found: Figures, cell: Cell) -> str:
    assert found.latency is not None
    assert found.latency_low is not None
    assert found.latency_high is not None
    return f"{words.seconds(found.latency)} {words.spread(found.latency_low, found.latency_high, found.latency)}"


def _speedup(found: Figures, cell: Cell) -> str:
    if found.speedup is None or found.speedup_low is None or found.speedup_high is None:
        return ""
    if found.speedup_high > 1000 * found.speedup:
        return f"about {words.ratio(found.speedup)}"
    exact = found.speedup_low == found.speedup_high
    return "1x" if exact else f"{found.speedup:.2f}x ({found.speedup_low:.2f} to {found.speedup_high:.2f})"


METRICS: dict[str, Callable[[Figures, Cell], str]] = {
    "latency": _latency,
    "speedup": _speedup,
    "tflops": lambda found, _: "" if found.tflops is None else f"{found.tflops:.3g}",
    "gbps": lambda found, _: "" if found.gbps is None else f"{found.gbps:.3g}",
    "accuracy": lambda found, _: "" if found.accuracy is None else f"{found.accuracy:.1e}",
    "compile_time": lambda found, _: words.seconds(found.compile_time or 0.0),
    "roofline": lambda found, _: "" if found.roofline is None else f"{100 * found.roofline:.0f} %",
    "best_config": lambda _, cell: " ".join(f"{name}={value}" for name, value in cell.config.items()),
}
"""How each metric is said."""

DEFAULT = ("latency", "speedup", "tflops", "gbps", "accuracy")


def rows(run: Run, metrics: tuple[str, ...], baseline: str) -> list[list[str]]:
    """A line for each cell: its call, implementation, metrics; or its mishap in their place."""
    made = []
    for bout, cell in run.cells():
        head = [bout.call.operator, f"{bout.call.shape} {bout.call.dtype}", cell.implementation]
        if not cell.samples:
            made.append([*head, *("-" for _ in metrics), str(cell.mishap or "not run")])
            continue
        found = figures(run, bout, cell, baseline)
        made.append([*head, *(METRICS[name](found, cell) for name in metrics), ""])
    return made


def flat(run: Run, baseline: str) -> list[dict[str, Any]]:
    """The same for machines: equal fields in every row."""
    made = []
    for bout, cell in run.cells():
        call, found = bout.call, msgspec.structs.asdict(figures(run, bout, cell, baseline))
        head = {"operator": call.operator, "sizes": call.shape, "dtype": call.dtype, "count": call.count}
        config = " ".join(f"{name}={value}" for name, value in cell.config.items())
        kind, reason = (cell.mishap.kind, cell.mishap.reason) if cell.mishap else ("", "")
        made.append(
            {**head, "implementation": cell.implementation, **found, "config": config, "mishap": kind, "reason": reason}
        )
    return made
