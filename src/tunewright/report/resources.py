"""Resources: what configs take of GPUs, as a heat map for each target: PNG, SVG or HTML."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunewright.errors import PluginError, SettingsError
from tunewright.report.figures import RED, labels, slant

TITLE = "Highest theoretical occupancy of configs that are kept (×: all dropped); compiled, not run"


@dataclass(frozen=True)
class Point:
    """One config on one target: its settings, and the occupancy it could reach; None if it is dropped."""

    target: str
    config: Mapping[str, Any]
    occupancy: float | None


@dataclass(frozen=True)
class Panel:
    """A target's configs by two of their settings; infinite where all are dropped, None where there is none."""

    target: str
    x: str
    y: str
    xs: list[Any]
    ys: list[Any]
    cells: list[list[float | None]]


def panels(points: Sequence[Point], axes: tuple[str | None, str | None] = (None, None)) -> list[Panel]:
    """A panel for each target; without `axes`, the two settings with most values, blocks before launch options."""
    values: dict[str, list[Any]] = defaultdict(list)
    for point in points:
        for name, value in point.config.items():
            if value not in values[name]:
                values[name].append(value)
    names = sorted(values, key=lambda name: (name.startswith("num_"), -len(values[name])))
    x = axes[0] or next((name for name in names if name != axes[1]), None)
    y = axes[1] or next((name for name in names if name != x), None)
    if x is None or y is None or x not in values or y not in values:
        raise SettingsError(f"a heat map takes two settings of the configs; these have {', '.join(names) or 'none'}")
    xs, ys = _ordered(values[x]), _ordered(values[y])
    return [
        Panel(target, x, y, xs, ys, [[_cell(points, target, {x: a, y: b}) for a in xs] for b in ys])
        for target in dict.fromkeys(point.target for point in points)
    ]


def _ordered(values: list[Any]) -> list[Any]:
    return sorted(values, key=lambda value: (not isinstance(value, int | float), str(value), 0)
                  if not isinstance(value, int | float) else (False, "", value))  # fmt: skip


def _cell(points: Sequence[Point], target: str, settings: Mapping[str, Any]) -> float | None:
    here = [p for p in points if p.target == target and all(p.config.get(n) == v for n, v in settings.items())]
    found = [point.occupancy for point in here if point.occupancy is not None]
    return max(found) if found else math.inf if here else None


def draw(path: Path, title: str, points: Sequence[Point], axes: tuple[str | None, str | None] = (None, None)) -> None:
    """Write the heat maps to `path`; its suffix says in which form."""
    made = panels(points, axes)
    try:
        if path.suffix == ".html":
            _plotly(path, title, made)
        else:
            _matplotlib(path, title, made)
    except ImportError as error:
        raise PluginError(f"drawing needs {error.name}; pip install 'tunewright[plot]'") from error


def _matplotlib(path: Path, title: str, made: Sequence[Panel]) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    figure = Figure(figsize=(1.5 + 3.6 * len(made), 4.4), layout="constrained")
    figure.suptitle(f"{title}\n{TITLE}", fontsize=10)
    row = figure.subplots(1, len(made), squeeze=False, sharey=True)[0]
    for axes, panel in zip(row, made, strict=True):
        cells = [[math.nan if c is None or math.isinf(c) else 100 * c for c in line] for line in panel.cells]
        image = axes.imshow(cells, aspect="auto", origin="lower", cmap="viridis", vmin=0, vmax=100)
        axes.set_xticks(range(len(panel.xs)), labels(panel.xs), **slant(panel.xs))
        axes.set_yticks(range(len(panel.ys)), labels(panel.ys))
        axes.set(xlabel=panel.x, title=panel.target)
        for j, line in enumerate(panel.cells):
            for i, cell in enumerate(line):
                if cell is not None:
                    ink = RED if math.isinf(cell) else "white" if cell < 0.6 else "black"
                    axes.text(i, j, _said(cell), ha="center", va="center", fontsize=8, color=ink)
    row[0].set_ylabel(made[0].y)
    figure.colorbar(image, ax=list(row), label="occupancy, %")
    figure.savefig(path, dpi=140)


def _plotly(path: Path, title: str, made: Sequence[Panel]) -> None:
    from plotly import graph_objects as go  # noqa: PLC0415 - an extra
    from plotly.subplots import make_subplots  # noqa: PLC0415 - an extra

    figure = make_subplots(rows=1, cols=len(made), subplot_titles=[panel.target for panel in made])
    for number, panel in enumerate(made, 1):
        cells = [[None if c is None or math.isinf(c) else 100 * c for c in line] for line in panel.cells]
        said = [["" if c is None else _said(c) for c in line] for line in panel.cells]
        hover = f"{panel.x}=%{{x}} {panel.y}=%{{y}}: %{{text}}<extra></extra>"
        heat = go.Heatmap(x=[str(v) for v in panel.xs], y=[str(v) for v in panel.ys], z=cells, text=said, zmin=0,
                          zmax=100, hovertemplate=hover, texttemplate="%{text}", colorscale="Viridis",
                          showscale=number == len(made), colorbar_title="occupancy, %")  # fmt: skip
        figure.add_trace(heat, row=1, col=number)
        figure.update_xaxes(title=panel.x, type="category", row=1, col=number)
        figure.update_yaxes(title=panel.y, type="category", row=1, col=number)
    figure.update_layout(title=f"{title}<br><sup>{TITLE}</sup>", template="plotly_white", height=520)
    figure.write_html(path, include_plotlyjs=True)


def _said(cell: float) -> str:
    return "×" if math.isinf(cell) else f"{100 * cell:.0f}"
