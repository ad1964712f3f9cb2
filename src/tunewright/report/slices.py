"""Slices of a space: trials by the value of each knob, and a heat map of the two most important; PNG, SVG, HTML."""

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
from tunewright.report import plots
from tunewright.report.importance import ImportanceReport, format_share
from tunewright.report.plots import BLUE, GREY, ORANGE, RED, UNITS, HeatMap
from tunewright.spaces.config import Value

MAX_SLICES = 8
"""Number of knobs that get a slice; the least important ones are omitted."""

MAX_COLUMNS = 4
MAX_TICKS = 9
"""Number of values up to which each is shown below a slice."""

JITTER = 0.28


@dataclass(frozen=True)
class KnobSlice:
    """All trials by the value of one knob: their times in the unit of the plot, failures, and the chosen value."""

    knob: str
    share: str
    values: list[Value]
    times: list[list[float]]
    failures: list[int]
    chosen: tuple[int, float] | None

    @classmethod
    def of(cls, trials: Sequence[Trial], knob: str, share: str, decision: Decision | None) -> KnobSlice:
        """Creates it from trials."""
        scale = UNITS[plots.time_unit(trials)]
        values = plots.varied_knobs(trials)[knob]
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
        """The shortest time of each value; None if all trials failed."""
        return [min(times, default=None) for times in self.times]

    @property
    def middle(self) -> list[float | None]:
        """The median time of each value; None if all trials failed."""
        return [median(times) if times else None for times in self.times]


@dataclass(frozen=True)
class _SlicePlot:
    """The content of the plot, in any format."""

    title: str
    slices: list[KnobSlice]
    heat: HeatMap | None
    unit: str
    left_out: int

    @property
    def limits(self) -> tuple[float, float]:
        """The limits of the time axis; failures are shown above it."""
        times = [time for knob_slice in self.slices for group in knob_slice.times for time in group] or [1.0]
        return min(times) / 1.15, max(times) * 1.3

    @property
    def grid(self) -> tuple[int, int]:
        """The number of rows and columns of slices."""
        count = max(1, len(self.slices))
        across = min(MAX_COLUMNS, math.ceil(count / 2)) if count > 3 else count
        return math.ceil(count / across), across

    @property
    def heading(self) -> str:
        shares = ", and its importance" if any(knob_slice.share for knob_slice in self.slices) else ""
        more = f"; {self.left_out} less important knobs are omitted" if self.left_out else ""
        return f"{self.unit} by the value of each knob{shares}{more}"


def draw(
    path: Path, key: Key, trials: Sequence[Trial], decision: Decision | None, importances: ImportanceReport | None
) -> None:
    """Writes the plot of one space to `path`, in the format of its suffix."""
    plot = _plot(f"{key.kernel}  {key.signature}  ·  {key.device}", trials, decision, importances)
    try:
        if path.suffix == ".html":
            _plotly(path, plot)
        else:
            _matplotlib(path, plot)
    except ImportError as error:
        raise PluginError(f"drawing needs {error.name}; pip install 'tunewright[plot]'") from error


def _plot(
    title: str, trials: Sequence[Trial], decision: Decision | None, importances: ImportanceReport | None
) -> _SlicePlot:
    """Returns the content of the plot: knobs by importance, or if that is unknown, by the distance of their times."""
    names, shares = plots.sort_by_influence(trials, plots.varied_knobs(trials)), {}
    if importances is not None:
        names = [importance.knob for importance in importances.knobs]
        shares = {importance.knob: format_share(importance) for importance in importances.knobs}
    slices = [KnobSlice.of(trials, name, shares.get(name, ""), decision) for name in names[:MAX_SLICES]]
    unit = plots.time_unit(trials)
    x, y = ([*names, None, None])[:2]
    heat = HeatMap.of(trials, (x, y), decision, unit) if y else None
    return _SlicePlot(f"{title}  ·  {len(trials)} trials", slices, heat, unit, max(0, len(names) - MAX_SLICES))


def _matplotlib(path: Path, plot: _SlicePlot) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    down, across = plot.grid
    figure = Figure(figsize=(4.8 + 2.35 * across, max(5.2, 2.9 * down)), layout="constrained")
    figure.suptitle(plot.title, fontsize=12)
    halves: Any = figure.subfigures(1, 2, width_ratios=(4.8, 2.35 * across), wspace=0.02)
    left, right = halves
    if plot.heat:
        plots.draw_matplotlib_heatmap(left, left.subplots(), plot.heat)
        left.axes[0].set_title("Best time by the two most important knobs", fontsize=10)
    grid = right.subplots(down, across, squeeze=False, sharey=True)
    right.suptitle(plot.heading, fontsize=10)
    for axes, knob_slice in zip(grid.flat, plot.slices, strict=False):
        _matplotlib_slice(axes, knob_slice, plot.limits)
    for axes in list(grid.flat)[len(plot.slices) :]:
        axes.remove()
    if plot.slices:
        _label_marks(grid.flat[0], plot.slices[0])
    figure.savefig(path, dpi=140)


def _matplotlib_slice(axes: Any, knob_slice: KnobSlice, limits: tuple[float, float]) -> None:
    """Draws one knob: a dot per trial, the best of each value as a line, the median as a dash."""
    count = sum(map(len, knob_slice.times))
    places = [
        (place + _jitter(i), time) for place, group in enumerate(knob_slice.times) for i, time in enumerate(group)
    ]
    alpha = min(0.75, max(0.08, 60 / max(1, count)))
    axes.scatter([x for x, _ in places], [y for _, y in places], s=9, color=GREY, alpha=alpha, linewidths=0)
    best = [math.nan if time is None else time for time in knob_slice.best]
    axes.plot(range(len(best)), best, color=BLUE, lw=2, marker="o", ms=4, zorder=3)
    for place, middle in enumerate(knob_slice.middle):
        if middle is not None:
            axes.plot([place - 0.3, place + 0.3], [middle, middle], color="black", lw=1.4, zorder=2)
    if knob_slice.chosen:
        axes.plot(*knob_slice.chosen, "o", ms=10, mfc="none", mec=ORANGE, mew=2, zorder=4)
    for place, failed in enumerate(knob_slice.failures):
        if failed:
            axes.text(place, limits[1] * 1.02, f"×{failed}", color=RED, fontsize=7, ha="center", va="bottom")
    axes.set(yscale="log", ylim=(limits[0], limits[1] * 1.25), xlim=(-0.6, len(best) - 0.4))
    plots.set_plain_ticks(axes.yaxis)
    shown = range(0, len(best), 1 + len(best) // MAX_TICKS)
    labels = plots.axis_labels(knob_slice.values)
    axes.set_xticks(shown, [labels[i] for i in shown], fontsize=8, **plots.label_rotation(knob_slice.values))
    axes.tick_params(axis="y", labelsize=8)
    axes.set_title(
        f"{knob_slice.knob}  {knob_slice.share}" if knob_slice.share else knob_slice.knob, fontsize=9, loc="left"
    )
    axes.spines[["top", "right"]].set_visible(False)


def _jitter(i: int) -> float:
    """Returns a deterministic horizontal shift, evenly spread by the golden ratio."""
    return JITTER * (2 * (i * 0.6180339887498949 % 1) - 1)


def _label_marks(axes: Any, knob_slice: KnobSlice) -> None:
    """Draws the legend of the marks."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 - an extra

    marks = [
        (Line2D([], [], color=GREY, marker="o", ls="", ms=3), "trial"),
        (Line2D([], [], color="black", lw=1.4), "median"),
        (Line2D([], [], color=BLUE, lw=2, marker="o", ms=4), "best"),
    ]
    if knob_slice.chosen:
        marks.append((Line2D([], [], marker="o", ls="", ms=8, mfc="none", mec=ORANGE, mew=2), "chosen"))
    if any(knob_slice.failures):
        marks.append((Line2D([], [], marker="x", ls="", ms=5, color=RED), "failed"))
    handles, labels = zip(*marks, strict=True)
    axes.figure.legend(handles, labels, loc="outside lower center", ncols=len(marks), frameon=False, fontsize=9)


def _plotly(path: Path, plot: _SlicePlot) -> None:
    from plotly.subplots import make_subplots  # noqa: PLC0415 - an extra

    down, across = plot.grid
    specs: list[list[Any]] = [[{"rowspan": down} if row == 0 else None, *[{}] * across] for row in range(down)]
    names = [
        "Best time by the two most important knobs",
        *(f"{knob_slice.knob}  {knob_slice.share}" for knob_slice in plot.slices),
    ]
    widths = [0.4, *[0.6 / across] * across]
    figure = make_subplots(rows=down, cols=across + 1, specs=specs, subplot_titles=names, column_widths=widths)
    if plot.heat:
        plots.draw_plotly_heatmap(figure, plot.heat, row=1, col=1)
        figure.update_traces(colorbar={"orientation": "h", "y": -0.12, "thickness": 12}, selector={"type": "heatmap"})
    for number, knob_slice in enumerate(plot.slices):
        place = {"row": number // across + 1, "col": number % across + 2}
        _plotly_slice(figure, knob_slice, place)
        figure.update_yaxes(type="log", range=[math.log10(limit) for limit in plot.limits], **place)
    title = f"{escape(plot.title)}<br><sub>{plot.heading}</sub>"
    figure.update_layout(title=title, template="plotly_white", showlegend=False, height=max(520, 300 * down))
    figure.write_html(path, include_plotlyjs=True)


def _plotly_slice(figure: Any, knob_slice: KnobSlice, place: dict[str, int]) -> None:
    """Draws one knob; hovering shows times and failures."""
    dots = [(p + _jitter(i), time, p) for p, group in enumerate(knob_slice.times) for i, time in enumerate(group)]
    trial_texts = [f"{knob_slice.knob}={knob_slice.values[p]}: {time:.3g}" for _, time, p in dots]
    mark = {"color": GREY, "size": 4, "opacity": 0.6}
    figure.add_scatter(x=[x for x, _, _ in dots], y=[y for _, y, _ in dots], mode="markers", marker=mark,
                       text=trial_texts, hovertemplate="%{text}<extra></extra>", **place)  # fmt: skip
    value_texts = [
        f"{knob_slice.knob}={value}: {failed} failed"
        for value, failed in zip(knob_slice.values, knob_slice.failures, strict=True)
    ]
    figure.add_scatter(x=list(range(len(value_texts))), y=knob_slice.best, mode="lines+markers", line={"color": BLUE},
                       text=value_texts, hovertemplate="best %{y:.3g}<br>%{text}<extra></extra>", **place)  # fmt: skip
    if knob_slice.chosen:
        ring = {"symbol": "circle-open", "size": 14, "color": ORANGE, "line": {"width": 3}}
        figure.add_scatter(
            x=[knob_slice.chosen[0]], y=[knob_slice.chosen[1]], mode="markers", marker=ring, hoverinfo="skip", **place
        )
    figure.update_xaxes(tickvals=list(range(len(value_texts))), ticktext=plots.axis_labels(knob_slice.values), **place)
