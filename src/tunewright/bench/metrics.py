"""Metrics of a cell: numbers for machines, text for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tunewright.bench.intervals import estimate, log_ratios
from tunewright.bench.results import BenchRun, CallComparison, Cell
from tunewright.model.trial import median
from tunewright.report import formatting
from tunewright.stats import interval


class CellMetrics(msgspec.Struct, frozen=True):
    """The metrics of a cell; None if it failed, or if its number of operations is unknown.

    `speedup` is its speed over the baseline's, from the rounds in which both ran, with a 95 % interval. `roofline` is
    the share of the best that this machine can do.
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


def cell_metrics(run: BenchRun, comparison: CallComparison, cell: Cell, baseline: str) -> CellMetrics:
    """Returns the metrics of one cell."""
    samples = [sample for repeat in cell.samples for sample in repeat]
    if not samples:
        return CellMetrics()
    seconds, (low, high) = median(samples), interval(samples)
    least, flops = run.roof.seconds(comparison.work, comparison.call.dtype), comparison.work.flops
    metrics = CellMetrics(
        seconds,
        low,
        high,
        tflops=flops / seconds / 1e12 if flops else None,
        gbps=comparison.work.bytes / seconds / 1e9,
        accuracy=cell.error,
        compile_time=cell.build_seconds,
        roofline=least / seconds if least else None,
    )
    base = comparison.cell(baseline)
    if base is None or not base.samples:
        return metrics
    speedup, low, high = (
        estimate(log_ratios(base.samples, cell.samples)).bounds() if base is not cell else (1.0, 1.0, 1.0)
    )
    return msgspec.structs.replace(metrics, speedup=speedup, speedup_low=low, speedup_high=high)


def _latency(metrics: CellMetrics, cell: Cell) -> str:
    assert metrics.latency is not None
    assert metrics.latency_low is not None
    assert metrics.latency_high is not None
    spread = formatting.spread(metrics.latency_low, metrics.latency_high, metrics.latency)
    return f"{formatting.seconds(metrics.latency)} {spread}"


def _speedup(metrics: CellMetrics, cell: Cell) -> str:
    if metrics.speedup is None or metrics.speedup_low is None or metrics.speedup_high is None:
        return ""
    if metrics.speedup_high > 1000 * metrics.speedup:
        return f"about {formatting.ratio(metrics.speedup)}"
    exact = metrics.speedup_low == metrics.speedup_high
    return "1x" if exact else f"{metrics.speedup:.2f}x ({metrics.speedup_low:.2f} to {metrics.speedup_high:.2f})"


METRICS: dict[str, Callable[[CellMetrics, Cell], str]] = {
    "latency": _latency,
    "speedup": _speedup,
    "tflops": lambda metrics, _: "" if metrics.tflops is None else f"{metrics.tflops:.3g}",
    "gbps": lambda metrics, _: "" if metrics.gbps is None else f"{metrics.gbps:.3g}",
    "accuracy": lambda metrics, _: "" if metrics.accuracy is None else f"{metrics.accuracy:.1e}",
    "compile_time": lambda metrics, _: formatting.seconds(metrics.compile_time or 0.0),
    "roofline": lambda metrics, _: "" if metrics.roofline is None else f"{100 * metrics.roofline:.0f} %",
    "best_config": lambda _, cell: " ".join(f"{name}={value}" for name, value in cell.config.items()),
}
"""The text of each metric."""

DEFAULT_METRICS = ("latency", "speedup", "tflops", "gbps", "accuracy")


def metric_rows(run: BenchRun, metrics: tuple[str, ...], baseline: str) -> list[list[str]]:
    """Returns a row for each cell: its call, its implementation, and its metrics, or its failure in their place."""
    rows = []
    for comparison, cell in run.cells():
        call = comparison.call
        head = [call.operator, f"{call.shape} {call.dtype}", cell.implementation]
        if not cell.samples:
            rows.append([*head, *("-" for _ in metrics), str(cell.failure or "not run")])
            continue
        values = cell_metrics(run, comparison, cell, baseline)
        rows.append([*head, *(METRICS[name](values, cell) for name in metrics), ""])
    return rows


def flat_rows(run: BenchRun, baseline: str) -> list[dict[str, Any]]:
    """Returns a row for each cell with numbers instead of text, and equal fields in every row."""
    rows = []
    for comparison, cell in run.cells():
        call, values = comparison.call, msgspec.structs.asdict(cell_metrics(run, comparison, cell, baseline))
        head = {"operator": call.operator, "sizes": call.shape, "dtype": call.dtype, "count": call.count}
        config = " ".join(f"{name}={value}" for name, value in cell.config.items())
        kind, reason = (cell.failure.kind, cell.failure.reason) if cell.failure else ("", "")
        end = {"config": config, "mishap": kind, "reason": reason}
        rows.append({**head, "implementation": cell.implementation, **values, **end})
    return rows
