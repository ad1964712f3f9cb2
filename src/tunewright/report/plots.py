"""Plots of a search: its convergence and a heat map of the space, as PNG, SVG or HTML."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tunewright.errors import PluginError, SettingsError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.report import formatting
from tunewright.spaces.config import Value

Axes = tuple[str | None, str | None]

BLUE, ORANGE, GREY, RED = "#2563eb", "#ea580c", "#9ca3af", "#dc2626"
COLOR_SCALE = "viridis_r"
UNITS = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
MAX_LABEL_LENGTH = 12
"""Characters of a value that are shown along an axis."""

HEAT_TITLE = "Best time by two knobs (outlined: chosen, ×: all failed)"


@dataclass(frozen=True)
class Convergence:
    """The time of each trial in order, the best so far, and the default, in `unit`; None for failures."""

    times: list[float | None]
    best: list[float | None]
    default: float | None
    unit: str

    @classmethod
    def of(cls, trials: Sequence[Trial], default: float | None, unit: str) -> Convergence:
        """Creates it from trials."""
        scale = UNITS[unit]
        times = [None if math.isinf(trial.seconds) else trial.seconds * scale for trial in trials]
        best: list[float | None] = []
        for time in times:
            before = best[-1] if best else None
            best.append(time if before is None else before if time is None else min(before, time))
        return cls(times, best, default and default * scale, unit)


@dataclass(frozen=True)
class HeatMap:
    """The best time for each pair of values of two knobs, over all values of the others, in `unit`.

    A cell is None if nothing was tried, and infinite if everything failed.
    """

    x: str
    y: str
    xs: list[Value]
    ys: list[Value]
    cells: list[list[float | None]]
    chosen: tuple[int, int] | None
    unit: str

    @classmethod
    def of(cls, trials: Sequence[Trial], axes: Axes, decision: Decision | None, unit: str) -> HeatMap | None:
        """Creates it from trials; returns None if fewer than two knobs were varied."""
        values = varied_knobs(trials)
        names = list(axes)
        for name in names:
            if name is not None and name not in values:
                raise SettingsError(f"no knob {name!r} was varied; these were: {', '.join(values)}")
        rest = [name for name in sort_by_influence(trials, values) if name not in names]
        x = names[0] or (rest.pop(0) if rest else None)
        y = names[1] or (rest.pop(0) if rest else None)
        if x is None or y is None:
            return None
        best: dict[tuple[Any, Any], float] = defaultdict(lambda: math.inf)
        for trial in trials:
            if x in trial.config and y in trial.config:
                pair = trial.config[x], trial.config[y]
                best[pair] = min(best[pair], trial.seconds * UNITS[unit])
        xs, ys = values[x], values[y]
        cells = [[best.get((a, b)) for a in xs] for b in ys]
        chosen = None
        if decision is not None and decision.config.get(x) in xs and decision.config.get(y) in ys:
            chosen = xs.index(decision.config[x]), ys.index(decision.config[y])
        return cls(x, y, xs, ys, cells, chosen, unit)


def varied_knobs(trials: Sequence[Trial]) -> dict[str, list[Value]]:
    """Returns the knobs with more than one value, and those values in order."""
    seen: dict[str, set[Value]] = defaultdict(set)
    for trial in trials:
        for name, value in trial.config.items():
            seen[name].add(value)
    ordered = {name: sorted(values, key=lambda v: (isinstance(v, str), v)) for name, values in seen.items()}
    return {name: values for name, values in ordered.items() if len(values) > 1}


def sort_by_influence(trials: Sequence[Trial], knobs: Iterable[str]) -> list[str]:
    """Returns knobs by the distance of the median times of their values; a quick look, not an importance analysis."""

    def influence(name: str) -> float:
        groups: dict[Value, list[float]] = defaultdict(list)
        for trial in trials:
            if name in trial.config and math.isfinite(trial.seconds):
                groups[trial.config[name]].append(math.log(trial.seconds))
        centers = [median(group) for group in groups.values()]
        return max(centers) - min(centers) if centers else 0.0

    return sorted(knobs, key=influence, reverse=True)


def time_unit(trials: Sequence[Trial]) -> str:
    """Returns the unit in which the fastest trial is a number of few digits."""
    fastest = min((trial.seconds for trial in trials), default=1.0)
    return next((name for name, scale in UNITS.items() if fastest * scale >= 1), "nanoseconds")


def draw(path: Path, key: Key, trials: Sequence[Trial], decision: Decision | None, axes: Axes = (None, None)) -> None:
    """Writes the plots of one search to `path`, in the format of its suffix."""
    try:
        if path.suffix == ".html":
            _plotly(path, _title(key), *_panels(trials, decision, axes))
        else:
            make_figure(key, trials, decision, axes).savefig(path, dpi=140)
    except ImportError as error:
        raise PluginError(f"drawing needs {error.name}; pip install 'tunewright[plot]'") from error


def _title(key: Key) -> str:
    return formatting.one_line(f"{key.kernel}  {key.signature}  ·  {key.device}")


def _panels(trials: Sequence[Trial], decision: Decision | None, axes: Axes) -> tuple[Convergence, HeatMap | None]:
    default = decision.evidence.default_seconds if decision and decision.evidence else None
    unit = time_unit(trials)
    return Convergence.of(trials, default, unit), HeatMap.of(trials, axes, decision, unit)


def make_figure(key: Key, trials: Sequence[Trial], decision: Decision | None, axes: Axes = (None, None)) -> Any:
    """Returns the plots of one search as a matplotlib figure, which notebooks show."""
    try:
        from tunewright.report.notebook_figure import NotebookFigure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise PluginError(f"drawing needs {error.name}; pip install 'tunewright[plot]'") from error
    convergence, heat = _panels(trials, decision, axes)
    figure = NotebookFigure(figsize=(13, 5.2) if heat else (7, 5), layout="constrained")
    figure.suptitle(_title(key), fontsize=11, parse_math=False)
    left, *right = figure.subplots(1, 2 if heat else 1, squeeze=False)[0]
    numbers = range(1, len(convergence.times) + 1)
    ran = [(n, t) for n, t in zip(numbers, convergence.times, strict=True) if t is not None]
    lost = [n for n, t in zip(numbers, convergence.times, strict=True) if t is None]
    left.scatter([n for n, _ in ran], [t for _, t in ran], s=14, color=GREY, label="trial", zorder=2)
    left.step(numbers, [math.nan if b is None else b for b in convergence.best], where="post", color=BLUE, lw=2,
              label="best so far", zorder=3)  # fmt: skip
    if convergence.default:
        left.axhline(convergence.default, color=ORANGE, ls="--", lw=1.5, label="default", zorder=1)
    if lost:
        top = max(t for _, t in ran) if ran else 1.0
        left.scatter(lost, [top * 1.15] * len(lost), marker="x", s=22, color=RED, label="failed", zorder=2)
    left.set_yscale("log")
    set_plain_ticks(left.yaxis)
    left.set(xlabel="trial", ylabel=convergence.unit, title="Convergence")
    left.legend(frameon=False, fontsize=9)
    left.spines[["top", "right"]].set_visible(False)
    if heat:
        draw_matplotlib_heatmap(figure, right[0], heat)
    return figure


def draw_matplotlib_heatmap(figure: Any, axes: Any, heat: HeatMap) -> None:
    """Draws a heat map on `axes`, with a color bar."""
    from matplotlib.colors import LogNorm  # noqa: PLC0415 - an extra

    cells = [[math.nan if c is None or math.isinf(c) else c for c in row] for row in heat.cells]
    finite = [c for row in cells for c in row if not math.isnan(c)]
    if not finite:
        axes.set_title("every config failed")
        return
    norm = LogNorm(min(finite), max(*finite, min(finite) * 1.001))
    image = axes.imshow(cells, aspect="auto", origin="lower", cmap=COLOR_SCALE, norm=norm)
    axes.set_xticks(range(len(heat.xs)), axis_labels(heat.xs), **label_rotation(heat.xs))
    axes.set_yticks(range(len(heat.ys)), axis_labels(heat.ys))
    if len(heat.xs) * len(heat.ys) <= 150:
        middle = math.sqrt(min(finite) * max(finite))
        for j, row in enumerate(heat.cells):
            for i, cell in enumerate(row):
                if cell is not None:
                    bad = math.isinf(cell)
                    ink = RED if bad else "black" if cell < middle else "white"
                    axes.text(i, j, "×" if bad else _short(cell), ha="center", va="center", fontsize=8, color=ink)
    if heat.chosen:
        i, j = heat.chosen
        box = [(i - 0.5, j - 0.5), (i + 0.5, j - 0.5), (i + 0.5, j + 0.5), (i - 0.5, j + 0.5), (i - 0.5, j - 0.5)]
        axes.plot([x for x, _ in box], [y for _, y in box], color=ORANGE, lw=2.5, clip_on=False)
    axes.set(xlabel=heat.x, ylabel=heat.y, title=HEAT_TITLE)
    bar = figure.colorbar(image, ax=axes, label=heat.unit)
    set_plain_ticks(bar.ax.yaxis)


def axis_labels(values: Sequence[Value]) -> list[str]:
    """Returns values as text for an axis; of long ones the end, where flags differ."""
    texts = [str(value) for value in values]
    return [text if len(text) <= MAX_LABEL_LENGTH else f"…{text[-MAX_LABEL_LENGTH + 1 :]}" for text in texts]


def label_rotation(values: Sequence[Value]) -> dict[str, Any]:
    """Returns the rotation of labels that would overlap."""
    return {"rotation": 20, "ha": "right"} if max(map(len, axis_labels(values))) > MAX_LABEL_LENGTH // 2 else {}


def _short(number: float) -> str:
    """Returns three digits, or as many as a whole number has."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def set_plain_ticks(axis: Any) -> None:
    """Sets plain numbers at 1, 2 and 5 on a logarithmic axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator  # noqa: PLC0415 - an extra

    axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _plotly(path: Path, title: str, convergence: Convergence, heat: HeatMap | None) -> None:
    from plotly.subplots import make_subplots  # noqa: PLC0415 - an extra

    names = ("Convergence", HEAT_TITLE) if heat else ("Convergence",)
    figure = make_subplots(rows=1, cols=len(names), subplot_titles=names)
    numbers = list(range(1, len(convergence.times) + 1))
    figure.add_scatter(x=numbers, y=convergence.times, mode="markers", name="trial", marker_color=GREY, row=1, col=1)
    best = {"shape": "hv", "color": BLUE, "width": 3}
    figure.add_scatter(x=numbers, y=convergence.best, mode="lines", name="best so far", line=best, row=1, col=1)
    if convergence.default:
        figure.add_hline(convergence.default, line_dash="dash", line_color=ORANGE, row=1, col=1)
    figure.update_yaxes(type="log", title=convergence.unit, row=1, col=1)
    figure.update_xaxes(title="trial", row=1, col=1)
    if heat:
        draw_plotly_heatmap(figure, heat, row=1, col=2)
    figure.update_layout(title=title, template="plotly_white", legend_orientation="h", height=560)
    figure.write_html(path, include_plotlyjs=True)


def draw_plotly_heatmap(figure: Any, heat: HeatMap, **place: int) -> None:
    """Draws a heat map as a panel of a figure."""
    from plotly import graph_objects as go  # noqa: PLC0415 - an extra

    cells = [[None if c is None or math.isinf(c) else math.log10(c) for c in row] for row in heat.cells]
    texts = [[_cell_text(cell, heat.unit) for cell in row] for row in heat.cells]
    x, y = [str(v) for v in heat.xs], [str(v) for v in heat.ys]
    hover = f"{heat.x}=%{{x}} {heat.y}=%{{y}}: %{{text}}<extra></extra>"
    trace = go.Heatmap(x=x, y=y, z=cells, text=texts, hovertemplate=hover, colorscale="Viridis_r",
                       texttemplate="%{text}", colorbar_title=f"log10 {heat.unit}")  # fmt: skip
    figure.add_trace(trace, **place)
    figure.update_xaxes(title=heat.x, type="category", **place)
    figure.update_yaxes(title=heat.y, type="category", **place)


def _cell_text(cell: float | None, unit: str) -> str:
    return "" if cell is None else "all failed" if math.isinf(cell) else formatting.seconds(cell / UNITS[unit])
