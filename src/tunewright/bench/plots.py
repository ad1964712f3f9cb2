"""Plots of a run: latency by size, the roofline, and a heat map of speed-ups; as PNG files or SVG."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from io import StringIO
from math import log2
from pathlib import Path
from typing import Any

import numpy as np

from tunewright.bench.metrics import CellMetrics, cell_metrics
from tunewright.bench.results import BenchRun, CallComparison, Cell
from tunewright.bench.work import call_volume
from tunewright.errors import PluginError
from tunewright.report import formatting

COLORS = ["#2563eb", "#ea580c", "#059669", "#7c3aed", "#be185d", "#111827", "#a16207", "#67e8f9"]
GRAY = "#64748b"
MAX_COLUMNS, POINT_OFFSET = 3, 0.06
"""Panels in a row; the distance of points of one call."""

MAX_DOUBLINGS = 3.0
"""Doublings of speed from which the heat map has one color."""


def require() -> None:
    """Raises PluginError if matplotlib is not installed."""
    if not available():
        raise PluginError(
            "plots need the package 'matplotlib', which is not installed; try: pip install 'tunewright[plot]'"
        )


def available() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def save_plots(run: BenchRun, baseline: str, folder: Path) -> list[Path]:
    """Writes all plots as PNG files to a folder; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, plot in PLOTS.items():
        figure = plot(run, baseline)
        if figure is not None:
            paths.append(folder / f"{name}.png")
            figure.savefig(paths[-1], dpi=150)
    return paths


def render_svgs(run: BenchRun, baseline: str) -> dict[str, str]:
    """Returns all plots as SVG, by name."""
    svgs = {}
    for name, plot in PLOTS.items():
        figure = plot(run, baseline)
        if figure is not None:
            text = StringIO()
            figure.savefig(text, format="svg", metadata={"Date": None})
            svgs[name] = text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]
    return svgs


def _figure(width: float, height: float, panels: int = 1) -> tuple[Any, list[Any]]:
    """Returns a figure with panels of this size, in rows of MAX_COLUMNS."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and heavy

    columns = min(panels, MAX_COLUMNS)
    rows = -(-panels // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in axes[panels:]:
        spare.set_axis_off()
    return figure, axes[:panels]


def _ticks(axis: Any) -> None:
    """Puts ticks at 1, 2 and 5 of each ten, with times as labels."""
    from matplotlib.ticker import FuncFormatter, LogLocator  # noqa: PLC0415 - as above

    axis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    for set_formatter in (axis.set_major_formatter, axis.set_minor_formatter):
        set_formatter(FuncFormatter(lambda seconds, _: formatting.seconds(seconds)))
    axis.set_tick_params(which="both", labelsize=7)


def _measured(run: BenchRun, baseline: str) -> list[tuple[CallComparison, Cell, CellMetrics]]:
    return [
        (comparison, cell, cell_metrics(run, comparison, cell, baseline))
        for comparison, cell in run.cells()
        if cell.samples
    ]


def _colors(run: BenchRun) -> dict[str, str]:
    names = dict.fromkeys(cell.implementation for _, cell in run.cells())
    return {name: COLORS[i % len(COLORS)] for i, name in enumerate(names)}


def latency(run: BenchRun, baseline: str) -> Any:
    """Plots latency by size: a panel for each operator and dtype."""
    measured, colors = _measured(run, baseline), _colors(run)
    kinds = list(dict.fromkeys((comparison.call.operator, comparison.call.dtype) for comparison, _, _ in measured))
    if not kinds:
        return None
    figure, panels = _figure(4.4, 3.6, len(kinds))
    for panel, kind in zip(panels, kinds, strict=True):
        own = [row for row in measured if (row[0].call.operator, row[0].call.dtype) == kind]
        calls = sorted({str(comparison.call): comparison.call for comparison, _, _ in own}.values(), key=call_volume)
        places = {str(call): i for i, call in enumerate(calls)}
        for number, (name, color) in enumerate(colors.items()):
            points = sorted(
                (places[str(comparison.call)], _latency_interval(metrics))
                for comparison, cell, metrics in own
                if cell.implementation == name
            )
            if points:
                xs = [x + POINT_OFFSET * (number - len(colors) / 2) for x, _ in points]  # ties are drawn side by side
                ys = np.array([span for _, span in points]).T
                bounds = ys[0] - ys[1], ys[2] - ys[0]
                panel.errorbar(xs, ys[0], bounds, color=color, marker="o", ms=4, lw=1.2, capsize=2, label=name)
        panel.set_xticks(range(len(calls)), [call.shape for call in calls], rotation=35, ha="right", fontsize=7)
        panel.set_xlim(-0.5, len(calls) - 0.5)
        panel.set_yscale("log")
        _ticks(panel.yaxis)
        panel.set_title(" ".join(kind), fontsize=10, loc="left")
        panel.grid(alpha=0.25)
    figure.legend(*_handles(panels), loc="outside right upper", frameon=False, fontsize=8)
    return figure


def _latency_interval(metrics: CellMetrics) -> tuple[float, float, float]:
    """Returns the latency of a measured cell, and its interval."""
    return metrics.latency or 0.0, metrics.latency_low or 0.0, metrics.latency_high or 0.0


def _handles(panels: Any) -> tuple[list[Any], list[str]]:
    """Returns the legend entries of all panels, each name once."""
    handles: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    return list(handles.values()), list(handles)


def roofline(run: BenchRun, baseline: str) -> Any:
    """Plots operations a second by operations a byte, under the measured roofline."""
    measured, colors = [row for row in _measured(run, baseline) if row[0].work.flops], _colors(run)
    if not measured or not run.roof.bandwidth or not run.roof.peaks:
        return None
    figure, (panel,) = _figure(7.0, 4.4)
    intensities = [comparison.work.intensity or 1.0 for comparison, _, _ in measured]
    ridges = [peak / run.roof.bandwidth for peak in run.roof.peaks.values()]
    xs = np.geomspace(min(*intensities, *ridges) / 4, max(*intensities, *ridges) * 2, 200)
    for dtype, peak in run.roof.peaks.items():
        panel.plot(xs, np.minimum(peak, xs * run.roof.bandwidth) / 1e9, color=GRAY, lw=1.2)
        panel.annotate(
            f"{dtype} {peak / 1e9:.0f} GFLOP/s", (xs[-1], peak / 1e9), ha="right", va="bottom", color=GRAY, fontsize=8
        )
    for name, color in colors.items():
        points = [
            (comparison.work.intensity, (metrics.tflops or 0) * 1e3)
            for comparison, cell, metrics in measured
            if cell.implementation == name
        ]
        if points:
            panel.scatter(*zip(*points, strict=True), color=color, s=22, label=name, zorder=3)
    panel.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel="GFLOP/s")
    threads = formatting.counted(run.threads, "thread")
    panel.set_title(f"{run.roof.bandwidth / 1e9:.1f} GB/s from memory, {threads}", fontsize=10, loc="left")
    panel.legend(frameon=False, fontsize=8)
    panel.grid(alpha=0.25)
    return figure


def heat_map(run: BenchRun, baseline: str) -> Any:
    """Plots speed-ups over the baseline: a row for each call, a column for each implementation; gray if it failed."""
    names = list(_colors(run))
    rows = [comparison for comparison in run.comparisons if any(cell.samples for cell in comparison.cells)]
    if not rows:
        return None
    table = np.full((len(rows), len(names)), np.nan)
    for i, comparison in enumerate(rows):
        for cell in comparison.cells:
            speedup = cell_metrics(run, comparison, cell, baseline).speedup
            if speedup:
                table[i, names.index(cell.implementation)] = log2(speedup)
    figure, (panel,) = _figure(2.5 + 1.1 * len(names), 1.2 + 0.32 * len(rows))
    panel.set_facecolor("#e2e8f0")
    panel.imshow(table, cmap="RdYlGn", vmin=-MAX_DOUBLINGS, vmax=MAX_DOUBLINGS, aspect="auto")
    for (i, j), value in np.ndenumerate(table):
        text = f"{2**value:.2f}x" if np.isfinite(value) else _failure_kind(rows[i], names[j])
        is_strong = np.isfinite(value) and abs(value) > 0.7 * MAX_DOUBLINGS
        panel.text(j, i, text, ha="center", va="center", fontsize=7, color="white" if is_strong else "black")
    panel.set_xticks(range(len(names)), names, fontsize=8)
    panel.set_yticks(range(len(rows)), [str(comparison.call) for comparison in rows], fontsize=7)
    panel.set_title(f"speed-up over {baseline}", fontsize=10, loc="left")
    return figure


def _failure_kind(comparison: CallComparison, name: str) -> str:
    cell = comparison.cell(name)
    return cell.failure.kind if cell and cell.failure else ""


PLOTS: dict[str, Callable[[BenchRun, str], Any]] = {"latency": latency, "roofline": roofline, "heat": heat_map}
