"""Regret of strategies, the share of the best speed they still miss, as tables and plots (PNG, SVG or HTML)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, inf, isfinite, log10
from pathlib import Path
from typing import Any

from tunewright.report import formatting, race_plot

COLORS = ["#2563eb", "#ea580c", "#059669", "#7c3aed", "#be185d", "#0891b2", "#a16207", "#475569"]
GREY, FAINT = "#64748b", "#f1f5f9"
MIN_REGRET = 1e-4
"""The smallest regret that is shown."""

MIN_LABEL_DISTANCE = 0.045
"""The smallest distance between two labels, as a share of the axis."""

MOMENTS = {0.01: "10 ms", 0.1: "0.1 s", 1: "1 s", 3: "3 s", 10: "10 s", 30: "30 s", 60: "1 min", 180: "3 min",
           600: "10 min", 1800: "30 min", 3600: "1 h", 10800: "3 h", 36000: "10 h"}  # fmt: skip
BAND_NOTE = "Bands: where 95 % of the means would lie if other seeds had been drawn"
Y_LABEL = "speed still missing, mean over {}"


@dataclass(frozen=True)
class RegretCurve:
    """Mean regret (1 - optimum / best so far) of one strategy along an axis, with its confidence band."""

    name: str
    xs: Sequence[float]
    middle: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class RegretPlot:
    """Curves that are plotted together, with their axis and title; `over` says what they are averaged over."""

    curves: Sequence[RegretCurve]
    title: str
    axis: str
    over: str
    logarithmic: bool = False
    """Whether the x axis is."""

    @property
    def floor(self) -> float:
        """The smallest regret on the axis, which is logarithmic and has no zero."""
        seen = [value for curve in self.curves for value in curve.low if value > MIN_REGRET]
        return max(MIN_REGRET, 0.8 * min(seen, default=MIN_REGRET))

    def colored(self) -> list[tuple[RegretCurve, str]]:
        """Returns the curves with their colors, by final regret."""
        ranked = sorted(self.curves, key=lambda curve: curve.middle[-1])
        return [(curve, COLORS[i % len(COLORS)]) for i, curve in enumerate(ranked)]


def summary_table(figures: Mapping[str, Mapping[str, Any]], *, cost: bool = False) -> tuple[list[str], list[list[str]]]:
    """Returns the heads and rows of a table of strategies, best at the largest budget first."""
    first = next(iter(figures.values()))
    ratios = [name for name in first if name[:1] == "r" and name[1:].isdigit()]
    ranked = sorted(figures.items(), key=lambda item: -float(item[1][ratios[-1]]))
    heads = ["strategy", *ratios, "e5", "e1", *(["s5", "s1"] if cost else []), "within 1 %", "CPU ms", "runs"]
    body = []
    for name, figure in ranked:
        cells = [f"{figure[ratio]:.3f}" for ratio in ratios]
        cells += [_number(figure[which]) for which in ("e5", "e1")]
        if cost:
            cells += [formatting.clock(figure[which]) if isfinite(figure[which]) else "-" for which in ("s5", "s1")]
        body.append([name, *cells, f"{figure['within1']:.0%}", f"{figure['cpu_ms']:.2f}", str(figure["runs"])])
    return heads, body


def _number(value: float) -> str:
    return "-" if value == inf else f"{value:g}"


def markdown_table(heads: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown: names aligned left, numbers right."""
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in body]
    return "\n".join(lines)


require = require_drawable = race_plot.require_drawable


def draw(path: Path, plot: RegretPlot) -> None:
    """Writes the plot to `path`, in the format of its suffix."""
    require(path)
    (_plotly if path.suffix == ".html" else _matplotlib)(path, plot)


def _matplotlib(path: Path, plot: RegretPlot) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    figure = Figure(figsize=(8.6, 5.2), layout="constrained")
    axes = figure.subplots()
    lowest, colored = plot.floor, plot.colored()
    for rank, (curve, color) in enumerate(colored):
        low, middle, high = ([max(lowest, v) for v in line] for line in (curve.low, curve.middle, curve.high))
        step: Any = None if plot.logarithmic else "post"
        over = 2 * (len(colored) - rank)
        axes.fill_between(curve.xs, low, high, step=step, color=color, alpha=0.15, lw=0, zorder=over)
        axes.plot(curve.xs, middle, color=color, lw=2.2, zorder=over + 1, solid_joinstyle="round",
                  drawstyle="steps-post" if step else "default")  # fmt: skip
    start, end = colored[0][0].xs[0], colored[0][0].xs[-1]
    top = max(value for curve in plot.curves for value in curve.high)
    axes.set(yscale="log", xscale="log" if plot.logarithmic else "linear", ylim=(lowest, min(1.0, 1.1 * top)))
    axes.set_xlim(start if plot.logarithmic else 0, end)
    _label(axes, colored, lowest)
    axes.yaxis.set_major_formatter(lambda share, _: _percent(share))
    axes.set_yticks(_ticks(lowest, axes.get_ylim()[1]))
    axes.minorticks_off()
    if plot.logarithmic:
        moments = {seconds: label for seconds, label in MOMENTS.items() if start <= seconds <= end}
        axes.set_xticks(list(moments), list(moments.values()))
    axes.set_title(_literal(plot.title), loc="left", fontsize=12, fontweight="bold", pad=30)
    axes.annotate(BAND_NOTE, (0, 1), xycoords="axes fraction", xytext=(0, 14), textcoords="offset points",
                  fontsize=9, color=GREY)  # fmt: skip
    axes.set_xlabel(plot.axis, color=GREY)
    axes.set_ylabel(Y_LABEL.format(plot.over), color=GREY)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    axes.tick_params(length=0, colors=GREY)
    axes.grid(axis="y", color=FAINT, lw=1.2)
    axes.set_axisbelow(True)
    figure.savefig(path, dpi=150)


def _label(axes: Any, colored: Sequence[tuple[RegretCurve, str]], lowest: float) -> None:
    """Draws names beside the ends of the curves, moved apart if they would overlap."""
    low, high = (log10(bound) for bound in axes.get_ylim())
    ends = [(log10(max(lowest, curve.middle[-1])) - low) / (high - low) for curve, _ in colored]
    for (curve, color), place in zip(colored, spread_labels(ends), strict=True):
        label = f"{_literal(curve.name)}  {_percent(curve.middle[-1])}"
        axes.annotate(label, (1, place), xycoords="axes fraction", xytext=(8, 0), textcoords="offset points",
                      color=color, va="center", fontsize=10, fontweight="bold", annotation_clip=False)  # fmt: skip


def spread_labels(places: Sequence[float], apart: float = MIN_LABEL_DISTANCE) -> list[float]:
    """Returns ascending positions, each moved up if it is too close to the one below."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + apart) if moved else max(0.0, place))
    return moved


def _ticks(low: float, high: float) -> list[float]:
    """Returns 1, 2 and 5 times the powers of ten between two bounds."""
    powers = range(floor(log10(low)), floor(log10(high)) + 1)
    return [mark for p in powers for mark in (10.0**p, 2 * 10.0**p, 5 * 10.0**p) if low <= mark <= high]


def _percent(share: float) -> str:
    return "0 %" if share <= 0 else f"{100 * share:.2g} %" if share < 0.995 else "100 %"


def _literal(text: str) -> str:
    """Escapes text so that matplotlib sees no formula."""
    return text.replace("$", r"\$")


def _plotly(path: Path, plot: RegretPlot) -> None:
    from plotly import graph_objects as go  # noqa: PLC0415 - an extra

    figure, lowest = go.Figure(), plot.floor
    for curve, color in reversed(plot.colored()):
        low, middle, high = ([max(lowest, v) for v in line] for line in (curve.low, curve.middle, curve.high))
        xs, shape = list(curve.xs), "linear" if plot.logarithmic else "hv"
        red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
        figure.add_scatter(x=xs, y=high, mode="lines", line={"width": 0, "shape": shape}, hoverinfo="skip",
                           showlegend=False, legendgroup=curve.name)  # fmt: skip
        figure.add_scatter(x=xs, y=low, mode="lines", line={"width": 0, "shape": shape}, fill="tonexty",
                           fillcolor=f"rgba({red},{green},{blue},0.15)", hoverinfo="skip",
                           showlegend=False, legendgroup=curve.name)  # fmt: skip
        texts = [f"{_percent(m)} ({_percent(a)} to {_percent(b)})"
                for m, a, b in zip(curve.middle, curve.low, curve.high, strict=True)]  # fmt: skip
        figure.add_scatter(x=xs, y=middle, mode="lines", name=escape(curve.name), legendgroup=curve.name,
                           line={"color": color, "width": 3, "shape": shape}, text=texts,
                           hovertemplate="%{x:.4g}: %{text}")  # fmt: skip
    ticks = _ticks(lowest, 1.0)
    figure.update_yaxes(type="log", title=Y_LABEL.format(plot.over), tickvals=ticks,
                        ticktext=[_percent(tick) for tick in ticks])  # fmt: skip
    figure.update_xaxes(title=plot.axis, type="log" if plot.logarithmic else "linear", showgrid=False)
    figure.update_layout(title=escape(plot.title), template="plotly_white", hovermode="x unified", height=600,
                         legend={"traceorder": "reversed"})  # fmt: skip
    figure.write_html(path, include_plotlyjs=True)
