"""Slices: a space as its trials show it, knob by knob, with a heat map of the two that matter most; PNG, SVG, HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

from tunewright.errors import PluginError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.report import figures
from tunewright.report.figures import BLUE, GREY, ORANGE, RED, UNITS, HeatMap
from tunewright.report.importance import Importances, percent
from tunewright.spaces.config import Value

MOST = 8
"""Knobs that get a slice; those that matter least are left out."""

ACROSS = 4
CROWD = 9
"""Values of a knob beyond which not each is written below its slice."""

JITTER = 0.28


@dataclass(frozen=True)
class Slice:
    """All trials by the value of one knob: their times in the unit of the picture, how many failed, the chosen one."""

    knob: str
    share: str
    values: list[Value]
    times: list[list[float]]
    failures: list[int]
    chosen: tuple[int, float] | None

    @classmethod
    def of(cls, trials: Sequence[Trial], knob: str, share: str, decision: Decision | None) -> Slice:
        """From a journal."""
        scale = UNITS[figures.unit_of(trials)]
        values = figures.varied(trials)[knob]
        times: list[list[float]] = [[] for _ in values]
        failures = [0] * len(values)
        for trial in trials:
            if knob in trial.config:
                place = values.index(trial.config[knob])
                if math.isfinite(trial.seconds):
                    times[place].append(trial.seconds * scale)
                else:
                    failures[place] += 1
        chosen = None
        if decision is not None and decision.config.get(knob) in values:
            place, config = values.index(decision.config[knob]), decision.config
            took = min((trial.seconds * scale for trial in trials if trial.config == config), default=math.inf)
            chosen = (place, took) if math.isfinite(took) else None
        return cls(knob, share, values, times, failures, chosen)

    @property
    def best(self) -> list[float | None]:
        """The least time of each value; None where nothing ran."""
        return [min(times, default=None) for times in self.times]

    @property
    def middle(self) -> list[float | None]:
        """The median time of each value."""
        return [median(times) if times else None for times in self.times]


@dataclass(frozen=True)
class _Picture:
    """What is drawn, in whichever form."""

    title: str
    slices: list[Slice]
    heat: HeatMap | None
    unit: str
    left_out: int

    @property
    def limits(self) -> tuple[float, float]:
        """The times between which all slices are drawn; above the upper one, failures."""
        times = [time for one in self.slices for group in one.times for time in group] or [1.0]
        return min(times) / 1.15, max(times) * 1.3

    @property
    def grid(self) -> tuple[int, int]:
        """Slices down and across."""
        count = max(1, len(self.slices))
        across = min(ACROSS, math.ceil(count / 2)) if count > 3 else count
        return math.ceil(count / across), across

    @property
    def heading(self) -> str:
        shares = ", and its share of what mattered" if any(one.share for one in self.slices) else ""
        more = f"; {self.left_out} that matter less are left out" if self.left_out else ""
        return f"{self.unit} by the value of each knob{shares}{more}"


def draw(
    path: Path, key: Key, trials: Sequence[Trial], decision: Decision | None, importances: Importances | None
) -> None:
    """Write the picture of one space to `path`; its suffix says in which form."""
    picture = _picture(f"{key.kernel}  {key.signature}  ·  {key.device}", trials, decision, importances)
    try:
        if path.suffix == ".html":
            _plotly(path, picture)
        else:
            _matplotlib(path, picture)
    except ImportError as error:
        raise PluginError(f"drawing needs {error.name}; pip install 'tunewright[plot]'") from error


def _picture(
    title: str, trials: Sequence[Trial], decision: Decision | None, importances: Importances | None
) -> _Picture:
    """What is to be drawn: knobs by importance, or where that is not known, by how far apart their values lie."""
    names, said = figures.by_influence(trials, figures.varied(trials)), {}
    if importances is not None:
        names = [one.knob for one in importances.knobs]
        said = {one.knob: percent(one) for one in importances.knobs}
    slices = [Slice.of(trials, name, said.get(name, ""), decision) for name in names[:MOST]]
    unit = figures.unit_of(trials)
    x, y = ([*names, None, None])[:2]
    heat = HeatMap.of(trials, (x, y), decision, unit) if y else None
    return _Picture(f"{title}  ·  {len(trials)} trials", slices, heat, unit, max(0, len(names) - MOST))


def _matplotlib(path: Path, picture: _Picture) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    down, across = picture.grid
    figure = Figure(figsize=(4.8 + 2.35 * across, max(5.2, 2.9 * down)), layout="constrained")
    figure.suptitle(picture.title, fontsize=12)
    halves: Any = figure.subfigures(1, 2, width_ratios=(4.8, 2.35 * across), wspace=0.02)
    left, right = halves
    if picture.heat:
        figures.matplotlib_heat(left, left.subplots(), picture.heat)
        left.axes[0].set_title("Best time by the two that matter most", fontsize=10)
    grid = right.subplots(down, across, squeeze=False, sharey=True)
    right.suptitle(picture.heading, fontsize=10)
    for axes, one in zip(grid.flat, picture.slices, strict=False):
        _matplotlib_slice(axes, one, picture.limits)
    for axes in list(grid.flat)[len(picture.slices) :]:
        axes.remove()
    if picture.slices:
        _label_marks(grid.flat[0], picture.slices[0])
    figure.savefig(path, dpi=140)


def _matplotlib_slice(axes: Any, one: Slice, limits: tuple[float, float]) -> None:
    """One knob: a dot per trial, the best of each value as a line, the median as a dash."""
    count = sum(map(len, one.times))
    places = [(place + _jitter(i), time) for place, group in enumerate(one.times) for i, time in enumerate(group)]
    alpha = min(0.75, max(0.08, 60 / max(1, count)))
    axes.scatter([x for x, _ in places], [y for _, y in places], s=9, color=GREY, alpha=alpha, linewidths=0)
    best = [math.nan if time is None else time for time in one.best]
    axes.plot(range(len(best)), best, color=BLUE, lw=2, marker="o", ms=4, zorder=3)
    for place, middle in enumerate(one.middle):
        if middle is not None:
            axes.plot([place - 0.3, place + 0.3], [middle, middle], color="black", lw=1.4, zorder=2)
    if one.chosen:
        axes.plot(*one.chosen, "o", ms=10, mfc="none", mec=ORANGE, mew=2, zorder=4)
    for place, failed in enumerate(one.failures):
        if failed:
            axes.text(place, limits[1] * 1.02, f"×{failed}", color=RED, fontsize=7, ha="center", va="bottom")
    axes.set(yscale="log", ylim=(limits[0], limits[1] * 1.25), xlim=(-0.6, len(best) - 0.4))
    figures.plain_ticks(axes.yaxis)
    shown = range(0, len(best), 1 + len(best) // CROWD)
    labels = figures.labels(one.values)
    axes.set_xticks(shown, [labels[i] for i in shown], fontsize=8, **figures.slant(one.values))
    axes.tick_params(axis="y", labelsize=8)
    axes.set_title(f"{one.knob}  {one.share}" if one.share else one.knob, fontsize=9, loc="left")
    axes.spines[["top", "right"]].set_visible(False)


def _jitter(i: int) -> float:
    """A shift to the side that is the same each time and spreads evenly, by the golden ratio."""
    return JITTER * (2 * (i * 0.6180339887498949 % 1) - 1)


def _label_marks(axes: Any, one: Slice) -> None:
    """Say once, beside the marks themselves, what they are."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 - an extra

    marks = [
        (Line2D([], [], color=GREY, marker="o", ls="", ms=3), "a trial"),
        (Line2D([], [], color="black", lw=1.4), "median"),
        (Line2D([], [], color=BLUE, lw=2, marker="o", ms=4), "best"),
    ]
    if one.chosen:
        marks.append((Line2D([], [], marker="o", ls="", ms=8, mfc="none", mec=ORANGE, mew=2), "chosen"))
    if any(one.failures):
        marks.append((Line2D([], [], marker="x", ls="", ms=5, color=RED), "failed"))
    handles, labels = zip(*marks, strict=True)
    axes.figure.legend(handles, labels, loc="outside lower center", ncols=len(marks), frameon=False, fontsize=9)


def _plotly(path: Path, picture: _Picture) -> None:
    from plotly.subplots import make_subplots  # noqa: PLC0415 - an extra

    down, across = picture.grid
    specs: list[list[Any]] = [[{"rowspan": down} if row == 0 else None, *[{}] * across] for row in range(down)]
    names = ["Best time by the two that matter most", *(f"{one.knob}  {one.share}" for one in picture.slices)]
    widths = [0.4, *[0.6 / across] * across]
    figure = make_subplots(rows=down, cols=across + 1, specs=specs, subplot_titles=names, column_widths=widths)
    if picture.heat:
        figures.plotly_heat(figure, picture.heat, row=1, col=1)
        figure.update_traces(colorbar={"orientation": "h", "y": -0.12, "thickness": 12}, selector={"type": "heatmap"})
    for number, one in enumerate(picture.slices):
        place = {"row": number // across + 1, "col": number % across + 2}
        _plotly_slice(figure, one, place)
        figure.update_yaxes(type="log", range=[math.log10(limit) for limit in picture.limits], **place)
    said = f"{escape(picture.title)}<br><sub>{picture.heading}</sub>"
    figure.update_layout(title=said, template="plotly_white", showlegend=False, height=max(520, 300 * down))
    figure.write_html(path, include_plotlyjs=True)


def _plotly_slice(figure: Any, one: Slice, place: dict[str, int]) -> None:
    """One knob; hovering tells times and failures."""
    dots = [(p + _jitter(i), time, p) for p, group in enumerate(one.times) for i, time in enumerate(group)]
    said = [f"{one.knob}={one.values[p]}: {time:.3g}" for _, time, p in dots]
    mark = {"color": GREY, "size": 4, "opacity": 0.6}
    figure.add_scatter(x=[x for x, _, _ in dots], y=[y for _, y, _ in dots], mode="markers", marker=mark, text=said,
                       hovertemplate="%{text}<extra></extra>", **place)  # fmt: skip
    told = [f"{one.knob}={value}: {failed} failed" for value, failed in zip(one.values, one.failures, strict=True)]
    figure.add_scatter(x=list(range(len(told))), y=one.best, mode="lines+markers", line={"color": BLUE}, text=told,
                       hovertemplate="best %{y:.3g}<br>%{text}<extra></extra>", **place)  # fmt: skip
    if one.chosen:
        ring = {"symbol": "circle-open", "size": 14, "color": ORANGE, "line": {"width": 3}}
        figure.add_scatter(x=[one.chosen[0]], y=[one.chosen[1]], mode="markers", marker=ring, hoverinfo="skip", **place)
    figure.update_xaxes(tickvals=list(range(len(told))), ticktext=figures.labels(one.values), **place)
