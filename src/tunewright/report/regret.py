"""Regret: how much of the best speed strategies still miss, as tables and as a picture (PNG, SVG or HTML)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, inf, isfinite, log10
from pathlib import Path
from typing import Any

from tunewright.report import raceplot, words

COLOURS = ["#2563eb", "#ea580c", "#059669", "#7c3aed", "#be185d", "#0891b2", "#a16207", "#475569"]
GREY, FAINT = "#64748b", "#f1f5f9"
LEAST = 1e-4
"""The regret below which nobody looks."""

APART = 0.045
"""The least distance between two labels, as a share of the axis."""

MOMENTS = {0.01: "10 ms", 0.1: "0.1 s", 1: "1 s", 3: "3 s", 10: "10 s", 30: "30 s", 60: "1 min", 180: "3 min",
           600: "10 min", 1800: "30 min", 3600: "1 h", 10800: "3 h", 36000: "10 h"}  # fmt: skip
BANDS = "Bands: where 95 % of the means would lie if other seeds had been drawn"
MISSING = "speed still missing, mean over {}"


@dataclass(frozen=True)
class Curve:
    """Mean regret (1 - optimum / best so far) of one strategy along an axis, and the band it may lie in."""

    name: str
    xs: Sequence[float]
    middle: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class Picture:
    """Curves to be drawn together: what they are over, by which axis, and the title."""

    curves: Sequence[Curve]
    title: str
    axis: str
    over: str
    logarithmic: bool = False
    """Whether the x axis is."""

    @property
    def floor(self) -> float:
        """The least regret to be shown: a logarithmic axis has no zero."""
        seen = [value for curve in self.curves for value in curve.low if value > LEAST]
        return max(LEAST, 0.8 * min(seen, default=LEAST))

    def coloured(self) -> list[tuple[Curve, str]]:
        """The curves with their colours, the best at the end first."""
        ranked = sorted(self.curves, key=lambda curve: curve.middle[-1])
        return [(curve, COLOURS[i % len(COLOURS)]) for i, curve in enumerate(ranked)]


def rows(figures: Mapping[str, Mapping[str, Any]], *, cost: bool = False) -> tuple[list[str], list[list[str]]]:
    """A table of strategies: its heads, and a row for each, the best at the largest budget first."""
    first = next(iter(figures.values()))
    ratios = [name for name in first if name[:1] == "r" and name[1:].isdigit()]
    ranked = sorted(figures.items(), key=lambda item: -float(item[1][ratios[-1]]))
    heads = ["strategy", *ratios, "e5", "e1", *(["s5", "s1"] if cost else []), "within 1 %", "CPU ms", "runs"]
    body = []
    for name, said in ranked:
        cells = [f"{said[ratio]:.3f}" for ratio in ratios]
        cells += [_number(said[which]) for which in ("e5", "e1")]
        if cost:
            cells += [words.clock(said[which]) if isfinite(said[which]) else "-" for which in ("s5", "s1")]
        body.append([name, *cells, f"{said['within1']:.0%}", f"{said['cpu_ms']:.2f}", str(said["runs"])])
    return heads, body


def _number(value: float) -> str:
    return "-" if value == inf else f"{value:g}"


def markdown(heads: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A table in Markdown: names to the left, numbers to the right."""
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in body]
    return "\n".join(lines)


require = raceplot.require


def draw(path: Path, picture: Picture) -> None:
    """Write the picture to `path`; its suffix says in which form."""
    require(path)
    (_plotly if path.suffix == ".html" else _matplotlib)(path, picture)


def _matplotlib(path: Path, picture: Picture) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    figure = Figure(figsize=(8.6, 5.2), layout="constrained")
    axes = figure.subplots()
    least, coloured = picture.floor, picture.coloured()
    for rank, (curve, colour) in enumerate(coloured):
        low, middle, high = ([max(least, v) for v in line] for line in (curve.low, curve.middle, curve.high))
        step: Any = None if picture.logarithmic else "post"
        over = 2 * (len(coloured) - rank)
        axes.fill_between(curve.xs, low, high, step=step, color=colour, alpha=0.15, lw=0, zorder=over)
        axes.plot(curve.xs, middle, color=colour, lw=2.2, zorder=over + 1, solid_joinstyle="round",
                  drawstyle="steps-post" if step else "default")  # fmt: skip
    start, end = coloured[0][0].xs[0], coloured[0][0].xs[-1]
    top = max(value for curve in picture.curves for value in curve.high)
    axes.set(yscale="log", xscale="log" if picture.logarithmic else "linear", ylim=(least, min(1.0, 1.1 * top)))
    axes.set_xlim(start if picture.logarithmic else 0, end)
    _label(axes, coloured, least)
    axes.yaxis.set_major_formatter(lambda share, _: _percent(share))
    axes.set_yticks(_ticks(least, axes.get_ylim()[1]))
    axes.minorticks_off()
    if picture.logarithmic:
        moments = {seconds: said for seconds, said in MOMENTS.items() if start <= seconds <= end}
        axes.set_xticks(list(moments), list(moments.values()))
    axes.set_title(_literal(picture.title), loc="left", fontsize=12, fontweight="bold", pad=30)
    axes.annotate(BANDS, (0, 1), xycoords="axes fraction", xytext=(0, 14), textcoords="offset points",
                  fontsize=9, color=GREY)  # fmt: skip
    axes.set_xlabel(picture.axis, color=GREY)
    axes.set_ylabel(MISSING.format(picture.over), color=GREY)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    axes.tick_params(length=0, colors=GREY)
    axes.grid(axis="y", color=FAINT, lw=1.2)
    axes.set_axisbelow(True)
    figure.savefig(path, dpi=150)


def _label(axes: Any, coloured: Sequence[tuple[Curve, str]], least: float) -> None:
    """Names beside the ends of the curves, moved apart where they would cover each other."""
    low, high = (log10(bound) for bound in axes.get_ylim())
    ends = [(log10(max(least, curve.middle[-1])) - low) / (high - low) for curve, _ in coloured]
    for (curve, colour), place in zip(coloured, spread(ends), strict=True):
        said = f"{_literal(curve.name)}  {_percent(curve.middle[-1])}"
        axes.annotate(said, (1, place), xycoords="axes fraction", xytext=(8, 0), textcoords="offset points",
                      color=colour, va="center", fontsize=10, fontweight="bold", annotation_clip=False)  # fmt: skip


def spread(places: Sequence[float], apart: float = APART) -> list[float]:
    """`places`, given in ascending order, moved up where one would come too near to the one below."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + apart) if moved else max(0.0, place))
    return moved


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten between two bounds."""
    powers = range(floor(log10(low)), floor(log10(high)) + 1)
    return [mark for p in powers for mark in (10.0**p, 2 * 10.0**p, 5 * 10.0**p) if low <= mark <= high]


def _percent(share: float) -> str:
    return "0 %" if share <= 0 else f"{100 * share:.2g} %" if share < 0.995 else "100 %"


def _literal(text: str) -> str:
    """Text in which matplotlib sees no formula."""
    return text.replace("$", r"\$")


def _plotly(path: Path, picture: Picture) -> None:
    from plotly import graph_objects as go  # noqa: PLC0415 - an extra

    figure, least = go.Figure(), picture.floor
    for curve, colour in reversed(picture.coloured()):
        low, middle, high = ([max(least, v) for v in line] for line in (curve.low, curve.middle, curve.high))
        xs, shape = list(curve.xs), "linear" if picture.logarithmic else "hv"
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        figure.add_scatter(x=xs, y=high, mode="lines", line={"width": 0, "shape": shape}, hoverinfo="skip",
                           showlegend=False, legendgroup=curve.name)  # fmt: skip
        figure.add_scatter(x=xs, y=low, mode="lines", line={"width": 0, "shape": shape}, fill="tonexty",
                           fillcolor=f"rgba({red},{green},{blue},0.15)", hoverinfo="skip",
                           showlegend=False, legendgroup=curve.name)  # fmt: skip
        said = [f"{_percent(m)} ({_percent(a)} to {_percent(b)})"
                for m, a, b in zip(curve.middle, curve.low, curve.high, strict=True)]  # fmt: skip
        figure.add_scatter(x=xs, y=middle, mode="lines", name=escape(curve.name), legendgroup=curve.name,
                           line={"color": colour, "width": 3, "shape": shape}, text=said,
                           hovertemplate="%{x:.4g}: %{text}")  # fmt: skip
    ticks = _ticks(least, 1.0)
    figure.update_yaxes(type="log", title=MISSING.format(picture.over), tickvals=ticks,
                        ticktext=[_percent(tick) for tick in ticks])  # fmt: skip
    figure.update_xaxes(title=picture.axis, type="log" if picture.logarithmic else "linear", showgrid=False)
    figure.update_layout(title=escape(picture.title), template="plotly_white", hovermode="x unified", height=600,
                         legend={"traceorder": "reversed"})  # fmt: skip
    figure.write_html(path, include_plotlyjs=True)
