"""Plot of a race: times relative to the leader, by round and at the end, as PNG, SVG or HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from math import asinh, exp, log
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tunewright.errors import PluginError, SettingsError
from tunewright.measure.race import Race, Standing
from tunewright.report import formatting
from tunewright.stats import UNKNOWN, paired

DRAWN_BY = {".png": "matplotlib", ".svg": "matplotlib", ".html": "plotly"}

LEADER_COLOR, GREY, FAINT, BAND = "#1e3a8a", "#94a3b8", "#f1f5f9", "#dbeafe"
TIE_COLORS = ["#2563eb", "#0891b2", "#059669", "#7c3aed"]
LOSER_COLORS = ["#ea580c", "#d97706", "#dc2626", "#be185d", "#92400e", "#a16207", "#9f1239"]
MAX_COLORED = 8
"""Number of contestants up to which each has its own color."""

TICK_RATIOS = (0.01, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1.001, 1.002, 1.005, 1.01, 1.02,
               1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 1e3, 1e4)  # fmt: skip
TICK_ROUNDS = (1, 2, 3, 4, 6, 10, 15, 20, 30, 50, 100, 200, 500, 1000)
MAX_TICKS = 9
"""Number of labels that fit under an axis."""


@dataclass(frozen=True)
class RaceTrack:
    """A contestant: its time relative to the leader in each round, the center so far, and its final standing."""

    name: str
    standing: Standing
    seconds: float
    ratios: list[float]
    centers: list[float]
    color: str
    leads: bool

    @property
    def ties(self) -> bool:
        """Whether it was not eliminated as slower than the leader."""
        return self.standing.left is None


@dataclass(frozen=True)
class RatioScale:
    """An axis of ratios that shows both 1 % and a factor of 100: linear near 1, logarithmic beyond.

    `near` is the ratio up to which it is nearly linear.
    """

    near: float

    def __call__(self, ratio: float) -> float:
        """Returns the position of a ratio; that of 1 is 0."""
        return asinh(log(ratio) / log(self.near))

    def marks(self, low: float, high: float) -> dict[float, str]:
        """Returns labels by position, between two positions and far enough apart to be read."""
        chosen, apart = {0.0: "1x"}, (high - low) / MAX_TICKS
        for ratio in sorted(TICK_RATIOS, key=lambda mark: abs(log(mark))):
            place = self(ratio)
            if low <= place <= high and all(abs(place - other) >= apart for other in chosen):
                chosen[place] = f"{ratio:g}x" if ratio >= 2 or ratio < 0.8 else f"{round(100 * (ratio - 1), 1):+g} %"
        return chosen


def ranked_order(race: Race) -> list[int]:
    """Returns the contestants by rank: the leader, those that tie with it, and the others, each from fast to slow."""
    standings = race.standings
    return sorted(
        range(len(standings)), key=lambda i: (i != race.leader, standings[i].left is not None, standings[i].ratio)
    )


def has_interval(standing: Standing) -> bool:
    """Whether there were enough rounds for an interval."""
    return log(standing.high / standing.low) < UNKNOWN


def contestant_seconds(race: Race, number: int) -> float:
    """Returns the seconds per run of a contestant: those of the leader times the ratio.

    The ratio is paired: both sides ran in the same rounds, even if the contestant was eliminated early.
    """
    return median(race.standings[race.leader].samples) * race.standings[number].ratio


def make_tracks(race: Race, names: Sequence[str]) -> list[RaceTrack]:
    """Returns the tracks of all contestants, by rank."""
    few, leader = len(names) <= MAX_COLORED, race.standings[race.leader].samples
    tie_colors, loser_colors, tracks = iter(TIE_COLORS * MAX_COLORED), iter(LOSER_COLORS * MAX_COLORED), []
    for i in ranked_order(race):
        standing = race.standings[i]
        logs = np.log(standing.samples[: len(leader)]) - np.log(leader[: len(standing.samples)])
        if i == race.leader:
            color = LEADER_COLOR
        elif standing.left is None:
            color = next(tie_colors) if few else TIE_COLORS[0]
        else:
            color = next(loser_colors) if few else GREY
        centers = [exp(paired(logs[:count])[0]) for count in range(1, len(logs) + 1)]
        tracks.append(
            RaceTrack(
                names[i], standing, contestant_seconds(race, i), np.exp(logs).tolist(), centers, color, i == race.leader
            )
        )
    return tracks


def require_drawable(path: Path) -> None:
    """Raises an error if nothing can be drawn to `path`."""
    package = DRAWN_BY.get(path.suffix)
    if package is None:
        raise SettingsError(f"cannot draw to {path.name!r}; give it one of the endings {', '.join(DRAWN_BY)}")
    if find_spec(package) is None:
        raise PluginError(f"drawing needs {package}; pip install 'tunewright[plot]'")
    if not path.absolute().parent.is_dir():
        raise SettingsError(f"there is no folder {path.parent}; make it first, or draw elsewhere")


def draw(path: Path, race: Race, names: Sequence[str]) -> None:
    """Writes the plot of a race to `path`, in the format of its suffix."""
    require_drawable(path)
    plot = _RacePlot(race, names)
    (_plotly if path.suffix == ".html" else _matplotlib)(path, plot)


class _RacePlot:
    """What both formats of the plot share."""

    left = "Round by round (dots: a round, line: center so far, ×: left the race)"
    ratio = "time over the leader's"

    def __init__(self, race: Race, names: Sequence[str]) -> None:
        self.tracks = make_tracks(race, names)
        self.rounds = len(self.tracks[0].ratios)
        self.scale = RatioScale(1 + race.margin)
        self.band = -self.scale(1 + race.margin), self.scale(1 + race.margin)
        ties = len(race.ties) - 1
        others = f"{formatting.counted(ties, 'other ties', 'others tie')} with it" if ties else "no ties"
        ended = "" if race.settled else " · not settled"
        self.title = f"{self.tracks[0].name} leads, {others} · {formatting.counted(self.rounds, 'round')}{ended}"
        few = "" if all(has_interval(track.standing) for track in self.tracks) else ", hollow: too few rounds"
        self.right = f"At the end (band: ±{100 * race.margin:g} %{few})"

    def round_limits(self) -> tuple[float, float]:
        """Returns the limits of the axis of rounds, which shows all centers and all but the most extreme rounds."""
        ratios = [ratio for track in self.tracks for ratio in track.ratios]
        centers = [center for track in self.tracks for center in track.centers]
        return self._limits([*np.quantile(ratios, [0.02, 0.98]), *centers])

    def interval_limits(self) -> tuple[float, float]:
        """Returns the limits of the axis of intervals."""
        ends = [track.standing for track in self.tracks]
        return self._limits([x for end in ends for x in ((end.low, end.high) if has_interval(end) else (end.ratio,))])

    def _limits(self, ratios: Sequence[float]) -> tuple[float, float]:
        places = [self.scale(ratio) for ratio in ratios] + list(self.band)
        air = 0.05 * (max(places) - min(places))
        return min(places) - air, max(places) + air


def _matplotlib(path: Path, plot: _RacePlot) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    figure = Figure(figsize=(13, max(4.0, 2.2 + 0.22 * len(plot.tracks))), layout="constrained")
    figure.suptitle(_literal(plot.title), fontsize=12, fontweight="bold")
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _rounds(left, plot)
    _ends(right, plot)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=FAINT)
        axes.set_axisbelow(True)
    figure.savefig(path, dpi=140)


def _rounds(axes: Any, plot: _RacePlot) -> None:
    scale, few = plot.scale, len(plot.tracks) <= MAX_COLORED
    axes.axhspan(*plot.band, color=BAND, lw=0, zorder=0)
    for track in reversed(plot.tracks):
        numbers = range(1, len(track.ratios) + 1)
        places, centers = [scale(x) for x in track.ratios], [scale(x) for x in track.centers]
        if not track.leads:
            axes.plot(numbers, places, ".", ms=5 if few else 3, mew=0, color=track.color, alpha=0.4, zorder=2)
        width = 2.2 if track.leads else 1.6 if few else 1.0
        axes.plot(numbers, centers, "-", lw=width, color=track.color, zorder=4 if track.ties else 3)
        if not track.ties:
            axes.plot(numbers[-1], centers[-1], "x", ms=6, mew=1.6, color=track.color, zorder=5)
    axes.set_xscale("log")
    axes.set(xlabel="round", ylabel=plot.ratio, ylim=plot.round_limits())
    axes.set_title(plot.left, fontsize=10)
    marks = scale.marks(*plot.round_limits())
    axes.set_yticks(list(marks), list(marks.values()))
    rounds = [n for n in TICK_ROUNDS if n <= plot.rounds]
    axes.set_xticks(rounds, [str(n) for n in rounds])
    axes.minorticks_off()


def _ends(axes: Any, plot: _RacePlot) -> None:
    scale, rows = plot.scale, range(len(plot.tracks))
    axes.axvspan(*plot.band, color=BAND, lw=0, zorder=0)
    for row, track in enumerate(plot.tracks):
        end, known = track.standing, has_interval(track.standing)
        if known:
            axes.plot([scale(end.low), scale(end.high)], [row, row], lw=2.4, color=track.color, alpha=0.6, zorder=2)
        face = track.color if known else "white"
        axes.plot(scale(end.ratio), row, "o", ms=6, color=track.color, mfc=face, zorder=3)
    axes.set(xlabel=plot.ratio, xlim=plot.interval_limits(), ylim=(len(rows) - 0.4, -0.6))
    axes.set_title(plot.right, fontsize=10)
    marks = scale.marks(*plot.interval_limits())
    axes.set_xticks(list(marks), list(marks.values()))
    axes.set_yticks(rows, [_literal(track.name) for track in plot.tracks], fontsize=8)
    for label, track in zip(axes.get_yticklabels(), plot.tracks, strict=True):
        label.set_color(track.color if track.ties or len(rows) <= MAX_COLORED else "black")
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(rows, [formatting.seconds(track.seconds) for track in plot.tracks], fontsize=8)
    beside.tick_params(length=0)
    axes.text(1.01, 1.01, "per run", transform=axes.transAxes, fontsize=8, color=GREY)
    beside.spines["right"].set_visible(False)


def _literal(text: str) -> str:
    """Escapes text so that matplotlib sees no formula."""
    return text.replace("$", r"\$")


def _plotly(path: Path, plot: _RacePlot) -> None:
    from plotly.subplots import make_subplots  # noqa: PLC0415 - an extra

    figure = make_subplots(rows=1, cols=2, subplot_titles=(plot.left, plot.right), horizontal_spacing=0.2)
    for row, track in reversed(list(enumerate(plot.tracks))):
        _plotly_track(figure, plot.scale, row, track)
    figure.add_hrect(*plot.band, fillcolor=BAND, line_width=0, layer="below", row=1, col=1)
    figure.add_vrect(*plot.band, fillcolor=BAND, line_width=0, layer="below", row=1, col=2)
    rounds = [n for n in TICK_ROUNDS if n <= plot.rounds]
    figure.update_xaxes(title="round", type="log", tickvals=rounds, row=1, col=1)
    for update, limits, column in (
        (figure.update_yaxes, plot.round_limits(), 1),
        (figure.update_xaxes, plot.interval_limits(), 2),
    ):
        marks = plot.scale.marks(*limits)
        ticks = {"tickvals": list(marks), "ticktext": list(marks.values()), "zeroline": False}
        update(title=plot.ratio, range=limits, **ticks, row=1, col=column)
    names = [escape(track.name) for track in plot.tracks]
    rows = {"tickvals": list(range(len(names))), "ticktext": names, "range": (len(names) - 0.4, -0.6)}
    figure.update_yaxes(**rows, row=1, col=2)
    height = max(520, 180 + 22 * len(names))
    figure.update_layout(title=escape(plot.title), template="plotly_white", showlegend=False, height=height)
    figure.write_html(path, include_plotlyjs=True)


def _plotly_track(figure: Any, scale: RatioScale, row: int, track: RaceTrack) -> None:
    """Draws one contestant in both halves of the plot; hovering shows its numbers."""
    name, color, end = escape(track.name), track.color, track.standing
    numbers = list(range(1, len(track.ratios) + 1))
    places, centers = [scale(x) for x in track.ratios], [scale(x) for x in track.centers]
    hover = {
        "text": [f"{x:.4g}x" for x in track.ratios],
        "hovertemplate": f"{name}<br>round %{{x}}: %{{text}}<extra></extra>",
    }
    if not track.leads:
        figure.add_scatter(x=numbers, y=places, mode="markers", marker={"color": color, "size": 5, "opacity": 0.4},
                           **hover, row=1, col=1)  # fmt: skip
    line = {"color": color, "width": 3 if track.leads else 2}
    figure.add_scatter(x=numbers, y=centers, mode="lines", line=line, hoverinfo="skip", row=1, col=1)
    if not track.ties:
        mark = {"symbol": "x-thin", "size": 8, "line": {"color": color, "width": 2}}
        figure.add_scatter(x=numbers[-1:], y=centers[-1:], mode="markers", marker=mark, hoverinfo="skip", row=1, col=1)
    position, text, bars = scale(end.ratio), f"{name}<br>{formatting.seconds(track.seconds)}, {end.ratio:.4g}x", None
    if has_interval(end):
        text += f" ({end.low:.4g} to {end.high:.4g})"
        bars = {
            "type": "data",
            "array": [scale(end.high) - position],
            "arrayminus": [position - scale(end.low)],
            "width": 0,
        }
    mark = {"color": color, "size": 9, "symbol": "circle" if bars else "circle-open"}
    figure.add_scatter(x=[position], y=[row], mode="markers", marker=mark, error_x=bars,
                       hovertemplate=f"{text}<extra></extra>", row=1, col=2)  # fmt: skip
