"""Heat maps of the occupancy of configs, one panel per target: PNG, SVG or HTML."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunewright.errors import PluginError, SettingsError
from tunewright.report.plots import RED, axis_labels, label_rotation

Axes = tuple[str | None, str | None]

TITLE = "Highest theoretical occupancy of configs that are kept (×: all dropped); compiled, not run"


@dataclass(frozen=True)
class OccupancyPoint:
    """One config on one target with its theoretical occupancy; None if it is dropped."""

    target: str
    config: Mapping[str, Any]
    occupancy: float | None


@dataclass(frozen=True)
class HeatmapPanel:
    """Configs of one target by two settings; a cell is infinite if all its configs are dropped, None if it has none."""

    target: str
    x: str
    y: str
    xs: list[Any]
    ys: list[Any]
    cells: list[list[float | None]]


def make_panels(points: Sequence[OccupancyPoint], axes: Axes = (None, None)) -> list[HeatmapPanel]:
    """Returns a panel per target; axes default to the settings with most values, block sizes before launch options."""
    values: dict[str, list[Any]] = defaultdict(list)
    for point in points:
        for name, value in point.config.items():
            if value not in values[name]:
                values[name].append(value)
    setting_names = sorted(values, key=lambda name: (name.startswith("num_"), -len(values[name])))
    x = axes[0] or next((name for name in setting_names if name != axes[1]), None)
    y = axes[1] or next((name for name in setting_names if name != x), None)
    if x is None or y is None or x not in values or y not in values:
        known = ", ".join(setting_names) or "none"
        raise SettingsError(f"a heat map needs two settings of the configs; there are: {known}")
    xs, ys = _sorted_values(values[x]), _sorted_values(values[y])
    return [
        HeatmapPanel(target, x, y, xs, ys, [[_cell(points, target, {x: a, y: b}) for a in xs] for b in ys])
        for target in dict.fromkeys(point.target for point in points)
    ]


def _sorted_values(values: list[Any]) -> list[Any]:
    return sorted(values, key=lambda value: (not isinstance(value, int | float), str(value), 0)
                  if not isinstance(value, int | float) else (False, "", value))  # fmt: skip


def _cell(points: Sequence[OccupancyPoint], target: str, settings: Mapping[str, Any]) -> float | None:
    matching = [p for p in points if p.target == target and all(p.config.get(n) == v for n, v in settings.items())]
    occupancies = [point.occupancy for point in matching if point.occupancy is not None]
    return max(occupancies) if occupancies else math.inf if matching else None


def draw_heatmap(path: Path, title: str, points: Sequence[OccupancyPoint], axes: Axes = (None, None)) -> None:
    """Writes the heat maps to `path` in the format of its suffix."""
    panels = make_panels(points, axes)
    try:
        if path.suffix == ".html":
            _plotly(path, title, panels)
        else:
            _matplotlib(path, title, panels)
    except ImportError as error:
        raise PluginError(f"drawing needs {error.name}; pip install 'tunewright[plot]'") from error


def _matplotlib(path: Path, title: str, panels: Sequence[HeatmapPanel]) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    figure = Figure(figsize=(1.5 + 3.6 * len(panels), 4.4), layout="constrained")
    figure.suptitle(f"{title}\n{TITLE}", fontsize=10)
    axes_row = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, panel in zip(axes_row, panels, strict=True):
        cells = [[math.nan if c is None or math.isinf(c) else 100 * c for c in line] for line in panel.cells]
        image = axes.imshow(cells, aspect="auto", origin="lower", cmap="viridis", vmin=0, vmax=100)
        axes.set_xticks(range(len(panel.xs)), axis_labels(panel.xs), **label_rotation(panel.xs))
        axes.set_yticks(range(len(panel.ys)), axis_labels(panel.ys))
        axes.set(xlabel=panel.x, title=panel.target)
        for j, line in enumerate(panel.cells):
            for i, cell in enumerate(line):
                if cell is not None:
                    color = RED if math.isinf(cell) else "white" if cell < 0.6 else "black"
                    axes.text(i, j, _cell_text(cell), ha="center", va="center", fontsize=8, color=color)
    axes_row[0].set_ylabel(panels[0].y)
    figure.colorbar(image, ax=list(axes_row), label="occupancy, %")
    figure.savefig(path, dpi=140)


def _plotly(path: Path, title: str, panels: Sequence[HeatmapPanel]) -> None:
    from plotly import graph_objects as go  # noqa: PLC0415 - an extra
    from plotly.subplots import make_subplots  # noqa: PLC0415 - an extra

    figure = make_subplots(rows=1, cols=len(panels), subplot_titles=[panel.target for panel in panels])
    for number, panel in enumerate(panels, 1):
        cells = [[None if c is None or math.isinf(c) else 100 * c for c in line] for line in panel.cells]
        texts = [["" if c is None else _cell_text(c) for c in line] for line in panel.cells]
        hover = f"{panel.x}=%{{x}} {panel.y}=%{{y}}: %{{text}}<extra></extra>"
        heat = go.Heatmap(x=[str(v) for v in panel.xs], y=[str(v) for v in panel.ys], z=cells, text=texts, zmin=0,
                          zmax=100, hovertemplate=hover, texttemplate="%{text}", colorscale="Viridis",
                          showscale=number == len(panels), colorbar_title="occupancy, %")  # fmt: skip
        figure.add_trace(heat, row=1, col=number)
        figure.update_xaxes(title=panel.x, type="category", row=1, col=number)
        figure.update_yaxes(title=panel.y, type="category", row=1, col=number)
    figure.update_layout(title=f"{title}<br><sup>{TITLE}</sup>", template="plotly_white", height=520)
    figure.write_html(path, include_plotlyjs=True)


def _cell_text(cell: float) -> str:
    return "×" if math.isinf(cell) else f"{100 * cell:.0f}"
