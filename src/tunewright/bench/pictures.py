"""Pictures: latency by size, the roofline, and a heat map of speed-ups; as PNG files or inside a page."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from io import StringIO
from math import log2
from pathlib import Path
from typing import Any

import numpy as np

from tunewright.bench.metrics import Figures, figures
from tunewright.bench.run import Bout, Cell, Run
from tunewright.bench.work import volume
from tunewright.errors import PluginError
from tunewright.report import words

COLOURS = ["#2563eb", "#ea580c", "#059669", "#7c3aed", "#be185d", "#111827", "#a16207", "#67e8f9"]
GREY = "#64748b"
ACROSS, APART = 3, 0.06
"""Panels beside each other; how far apart points of one call are drawn."""

FAR = 3.0
"""Doublings of speed from which the heat map has one colour."""


def require() -> None:
    """Say now what would keep us from drawing later."""
    if not available():
        raise PluginError(
            "pictures need the package 'matplotlib', which is not installed; try: pip install 'tunewright[plot]'"
        )


def available() -> bool:
    """Whether pictures can be drawn here."""
    return find_spec("matplotlib") is not None


def draw(run: Run, baseline: str, folder: Path) -> list[Path]:
    """All pictures as PNG files in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, picture in PICTURES.items():
        figure = picture(run, baseline)
        if figure is not None:
            made.append(folder / f"{name}.png")
            figure.savefig(made[-1], dpi=150)
    return made


def drawn(run: Run, baseline: str) -> dict[str, str]:
    """All pictures as SVG, by name."""
    made = {}
    for name, picture in PICTURES.items():
        figure = picture(run, baseline)
        if figure is not None:
            text = StringIO()
            figure.savefig(text, format="svg", metadata={"Date": None})
            made[name] = text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]
    return made


def _figure(width: float, height: float, panels: int = 1) -> tuple[Any, list[Any]]:
    """A figure with so many panels of this size, side by side until they are too many."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and heavy

    columns = min(panels, ACROSS)
    rows = -(-panels // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    every = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in every[panels:]:
        spare.set_axis_off()
    return figure, every[:panels]


def _ticks(axis: Any) -> None:
    """Times at 1, 2 and 5 of each ten, as people write them."""
    from matplotlib.ticker import FuncFormatter, LogLocator  # noqa: PLC0415 - as above

    axis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    for put in (axis.set_major_formatter, axis.set_minor_formatter):
        put(FuncFormatter(lambda seconds, _: words.seconds(seconds)))
    axis.set_tick_params(which="both", labelsize=7)


def _measured(run: Run, baseline: str) -> list[tuple[Bout, Cell, Figures]]:
    return [(bout, cell, figures(run, bout, cell, baseline)) for bout, cell in run.cells() if cell.samples]


def _colours(run: Run) -> dict[str, str]:
    names = dict.fromkeys(cell.implementation for _, cell in run.cells())
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}


def latency(run: Run, baseline: str) -> Any:
    """Latency by size: a panel for each operator and dtype."""
    seen, colours = _measured(run, baseline), _colours(run)
    kinds = list(dict.fromkeys((bout.call.operator, bout.call.dtype) for bout, _, _ in seen))
    if not kinds:
        return None
    figure, panels = _figure(4.4, 3.6, len(kinds))
    for panel, kind in zip(panels, kinds, strict=True):
        own = [one for one in seen if (one[0].call.operator, one[0].call.dtype) == kind]
        calls = sorted({str(bout.call): bout.call for bout, _, _ in own}.values(), key=volume)
        places = {str(call): i for i, call in enumerate(calls)}
        for number, (name, colour) in enumerate(colours.items()):
            points = sorted((places[str(b.call)], _span(f)) for b, c, f in own if c.implementation == name)
            if points:
                xs = [x + APART * (number - len(colours) / 2) for x, _ in points]  # who ties is seen beside the other
                ys = np.array([span for _, span in points]).T
                bounds = ys[0] - ys[1], ys[2] - ys[0]
                panel.errorbar(xs, ys[0], bounds, color=colour, marker="o", ms=4, lw=1.2, capsize=2, label=name)
        panel.set_xticks(range(len(calls)), [call.shape for call in calls], rotation=35, ha="right", fontsize=7)
        panel.set_xlim(-0.5, len(calls) - 0.5)
        panel.set_yscale("log")
        _ticks(panel.yaxis)
        panel.set_title(" ".join(kind), fontsize=10, loc="left")
        panel.grid(alpha=0.25)
    figure.legend(*_handles(panels), loc="outside right upper", frameon=False, fontsize=8)
    return figure


def _span(found: Figures) -> tuple[float, float, float]:
    """The latency of a cell that was measured, and its interval."""
    return found.latency or 0.0, found.latency_low or 0.0, found.latency_high or 0.0


def _handles(panels: Any) -> tuple[list[Any], list[str]]:
    """Each name once, whatever panels it is in."""
    found: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


def roofline(run: Run, baseline: str) -> Any:
    """Operations a second by operations a byte, under the roof that was measured."""
    seen, colours = [one for one in _measured(run, baseline) if one[0].work.flops], _colours(run)
    if not seen or not run.roof.bandwidth or not run.roof.peaks:
        return None
    figure, (panel,) = _figure(7.0, 4.4)
    reach = [bout.work.intensity or 1.0 for bout, _, _ in seen]
    ridges = [peak / run.roof.bandwidth for peak in run.roof.peaks.values()]
    xs = np.geomspace(min(*reach, *ridges) / 4, max(*reach, *ridges) * 2, 200)
    for dtype, peak in run.roof.peaks.items():
        panel.plot(xs, np.minimum(peak, xs * run.roof.bandwidth) / 1e9, color=GREY, lw=1.2)
        panel.annotate(
            f"{dtype} {peak / 1e9:.0f} GFLOP/s", (xs[-1], peak / 1e9), ha="right", va="bottom", color=GREY, fontsize=8
        )
    for name, colour in colours.items():
        own = [(bout.work.intensity, (f.tflops or 0) * 1e3) for bout, cell, f in seen if cell.implementation == name]
        if own:
            panel.scatter(*zip(*own, strict=True), color=colour, s=22, label=name, zorder=3)
    panel.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel="GFLOP/s")
    on = words.counted(run.threads, "thread")
    panel.set_title(f"{run.roof.bandwidth / 1e9:.1f} GB/s from memory, {on}", fontsize=10, loc="left")
    panel.legend(frameon=False, fontsize=8)
    panel.grid(alpha=0.25)
    return figure


def heat(run: Run, baseline: str) -> Any:
    """Speed-ups over the baseline: calls down, implementations across; grey where a cell failed."""
    names, rows = list(_colours(run)), [bout for bout in run.bouts if any(cell.samples for cell in bout.cells)]
    if not rows:
        return None
    table = np.full((len(rows), len(names)), np.nan)
    for i, bout in enumerate(rows):
        for cell in bout.cells:
            speed = figures(run, bout, cell, baseline).speedup
            if speed:
                table[i, names.index(cell.implementation)] = log2(speed)
    figure, (panel,) = _figure(2.5 + 1.1 * len(names), 1.2 + 0.32 * len(rows))
    panel.set_facecolor("#e2e8f0")
    panel.imshow(table, cmap="RdYlGn", vmin=-FAR, vmax=FAR, aspect="auto")
    for (i, j), value in np.ndenumerate(table):
        said = f"{2**value:.2f}x" if np.isfinite(value) else _why(rows[i], names[j])
        strong = np.isfinite(value) and abs(value) > 0.7 * FAR
        panel.text(j, i, said, ha="center", va="center", fontsize=7, color="white" if strong else "black")
    panel.set_xticks(range(len(names)), names, fontsize=8)
    panel.set_yticks(range(len(rows)), [str(bout.call) for bout in rows], fontsize=7)
    panel.set_title(f"times the speed of {baseline}", fontsize=10, loc="left")
    return figure


def _why(bout: Bout, name: str) -> str:
    cell = bout.cell(name)
    return cell.mishap.kind if cell and cell.mishap else ""


PICTURES: dict[str, Callable[[Run, str], Any]] = {"latency": latency, "roofline": roofline, "heat": heat}
