"""Race plot: everyone's time over the leader's, round by round and at the end; the same picture as PNG, SVG or HTML."""

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
from tunewright.measure.stats import UNKNOWN, paired
from tunewright.report import words

DRAWN_BY = {".png": "matplotlib", ".svg": "matplotlib", ".html": "plotly"}

LEADER, GREY, FAINT, BAND = "#1e3a8a", "#94a3b8", "#f1f5f9", "#dbeafe"
COOL = ["#2563eb", "#0891b2", "#059669", "#7c3aed"]
WARM = ["#ea580c", "#d97706", "#dc2626", "#be185d", "#92400e", "#a16207", "#9f1239"]
FEW = 8
"""Contestants up to which each has a colour of its own."""

MARKS = (0.01, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1.001, 1.002, 1.005, 1.01, 1.02, 1.05,
         1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 1e3, 1e4)  # fmt: skip
ROUNDS = (1, 2, 3, 4, 6, 10, 15, 20, 30, 50, 100, 200, 500, 1000)
MOST_MARKS = 9
"""How many labels fit beside each other under an axis."""


@dataclass(frozen=True)
class Track:
    """One contestant's way: its time over the leader's in each round, the centre of them so far, and how it ended."""

    name: str
    standing: Standing
    seconds: float
    ratios: list[float]
    centres: list[float]
    colour: str
    leads: bool

    @property
    def ties(self) -> bool:
        """Whether it was never shown to be slower than the leader."""
        return self.standing.left is None


@dataclass(frozen=True)
class Scale:
    """An axis of ratios that shows a hundredth and a hundredfold at once: linear near 1, logarithmic beyond.

    `near` is the ratio up to which it is nearly linear.
    """

    near: float

    def __call__(self, ratio: float) -> float:
        """Where a ratio is drawn; 1 is drawn at 0."""
        return asinh(log(ratio) / log(self.near))

    def marks(self, low: float, high: float) -> dict[float, str]:
        """Places to label between two places, far enough apart to be read, and the labels."""
        chosen, apart = {0.0: "1x"}, (high - low) / MOST_MARKS
        for ratio in sorted(MARKS, key=lambda mark: abs(log(mark))):
            place = self(ratio)
            if low <= place <= high and all(abs(place - other) >= apart for other in chosen):
                chosen[place] = f"{ratio:g}x" if ratio >= 2 or ratio < 0.8 else f"{round(100 * (ratio - 1), 1):+g} %"
        return chosen


def order(race: Race) -> list[int]:
    """Everyone by place: the leader, those that tie with it, the rest; each of them from fast to slow."""
    standings = race.standings
    return sorted(
        range(len(standings)), key=lambda i: (i != race.leader, standings[i].left is not None, standings[i].ratio)
    )


def bounded(standing: Standing) -> bool:
    """Whether there were rounds enough for an interval."""
    return log(standing.high / standing.low) < UNKNOWN


def seconds(race: Race, number: int) -> float:
    """A contestant's seconds per run: the leader's, times the ratio.

    Paired: both sides of a ratio have met the same rounds; whoever left early has met other rounds than the leader.
    """
    return median(race.standings[race.leader].samples) * race.standings[number].ratio


def tracks(race: Race, names: Sequence[str]) -> list[Track]:
    """Everyone's track, by place."""
    few, leader = len(names) <= FEW, race.standings[race.leader].samples
    cool, warm, found = iter(COOL * FEW), iter(WARM * FEW), []
    for i in order(race):
        standing = race.standings[i]
        logs = np.log(standing.samples[: len(leader)]) - np.log(leader[: len(standing.samples)])
        if i == race.leader:
            colour = LEADER
        elif standing.left is None:
            colour = next(cool) if few else COOL[0]
        else:
            colour = next(warm) if few else GREY
        centres = [exp(paired(logs[:count])[0]) for count in range(1, len(logs) + 1)]
        found.append(
            Track(names[i], standing, seconds(race, i), np.exp(logs).tolist(), centres, colour, i == race.leader)
        )
    return found


def require(path: Path) -> None:
    """Say now what would keep us from drawing to `path` later."""
    package = DRAWN_BY.get(path.suffix)
    if package is None:
        raise SettingsError(f"cannot draw to {path.name!r}; give it one of the endings {', '.join(DRAWN_BY)}")
    if find_spec(package) is None:
        raise PluginError(f"drawing needs {package}; pip install 'tunewright[plot]'")
    if not path.absolute().parent.is_dir():
        raise SettingsError(f"there is no folder {path.parent}; make it first, or draw elsewhere")


def draw(path: Path, race: Race, names: Sequence[str]) -> None:
    """Write the picture of a race to `path`; its suffix says in which form."""
    require(path)
    picture = _Picture(race, names)
    (_plotly if path.suffix == ".html" else _matplotlib)(path, picture)


class _Picture:
    """What both forms of the picture share."""

    left = "Round by round (dots: a round, line: centre so far, ×: left the race)"
    ratio = "time over the leader's"

    def __init__(self, race: Race, names: Sequence[str]) -> None:
        self.tracks = tracks(race, names)
        self.rounds = len(self.tracks[0].ratios)
        self.scale = Scale(1 + race.margin)
        self.band = -self.scale(1 + race.margin), self.scale(1 + race.margin)
        ties = len(race.ties) - 1
        others = f"{words.counted(ties, 'other ties', 'others tie')} with it" if ties else "nobody ties with it"
        ended = "" if race.settled else " · not settled"
        self.title = f"{self.tracks[0].name} leads, {others} · {words.counted(self.rounds, 'round')}{ended}"
        few = "" if all(bounded(track.standing) for track in self.tracks) else ", hollow: too few rounds"
        self.right = f"At the end (band: ±{100 * race.margin:g} %{few})"

    def on_the_way(self) -> tuple[float, float]:
        """Where the axis of the rounds begins and ends: it holds every centre, and all but the wildest rounds."""
        ratios = [ratio for track in self.tracks for ratio in track.ratios]
        centres = [centre for track in self.tracks for centre in track.centres]
        return self._limits([*np.quantile(ratios, [0.02, 0.98]), *centres])

    def at_the_end(self) -> tuple[float, float]:
        """Where the axis of the intervals begins and ends."""
        ends = [track.standing for track in self.tracks]
        return self._limits([x for end in ends for x in ((end.low, end.high) if bounded(end) else (end.ratio,))])

    def _limits(self, ratios: Sequence[float]) -> tuple[float, float]:
        places = [self.scale(ratio) for ratio in ratios] + list(self.band)
        air = 0.05 * (max(places) - min(places))
        return min(places) - air, max(places) + air


def _matplotlib(path: Path, picture: _Picture) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    figure = Figure(figsize=(13, max(4.0, 2.2 + 0.22 * len(picture.tracks))), layout="constrained")
    figure.suptitle(_literal(picture.title), fontsize=12, fontweight="bold")
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _rounds(left, picture)
    _ends(right, picture)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=FAINT)
        axes.set_axisbelow(True)
    figure.savefig(path, dpi=140)


def _rounds(axes: Any, picture: _Picture) -> None:
    scale, few = picture.scale, len(picture.tracks) <= FEW
    axes.axhspan(*picture.band, color=BAND, lw=0, zorder=0)
    for track in reversed(picture.tracks):
        numbers = range(1, len(track.ratios) + 1)
        places, centres = [scale(x) for x in track.ratios], [scale(x) for x in track.centres]
        if not track.leads:
            axes.plot(numbers, places, ".", ms=5 if few else 3, mew=0, color=track.colour, alpha=0.4, zorder=2)
        width = 2.2 if track.leads else 1.6 if few else 1.0
        axes.plot(numbers, centres, "-", lw=width, color=track.colour, zorder=4 if track.ties else 3)
        if not track.ties:
            axes.plot(numbers[-1], centres[-1], "x", ms=6, mew=1.6, color=track.colour, zorder=5)
    axes.set_xscale("log")
    axes.set(xlabel="round", ylabel=picture.ratio, ylim=picture.on_the_way())
    axes.set_title(picture.left, fontsize=10)
    marks = scale.marks(*picture.on_the_way())
    axes.set_yticks(list(marks), list(marks.values()))
    rounds = [n for n in ROUNDS if n <= picture.rounds]
    axes.set_xticks(rounds, [str(n) for n in rounds])
    axes.minorticks_off()


def _ends(axes: Any, picture: _Picture) -> None:
    scale, rows = picture.scale, range(len(picture.tracks))
    axes.axvspan(*picture.band, color=BAND, lw=0, zorder=0)
    for row, track in enumerate(picture.tracks):
        end, known = track.standing, bounded(track.standing)
        if known:
            axes.plot([scale(end.low), scale(end.high)], [row, row], lw=2.4, color=track.colour, alpha=0.6, zorder=2)
        face = track.colour if known else "white"
        axes.plot(scale(end.ratio), row, "o", ms=6, color=track.colour, mfc=face, zorder=3)
    axes.set(xlabel=picture.ratio, xlim=picture.at_the_end(), ylim=(len(rows) - 0.4, -0.6))
    axes.set_title(picture.right, fontsize=10)
    marks = scale.marks(*picture.at_the_end())
    axes.set_xticks(list(marks), list(marks.values()))
    axes.set_yticks(rows, [_literal(track.name) for track in picture.tracks], fontsize=8)
    for label, track in zip(axes.get_yticklabels(), picture.tracks, strict=True):
        label.set_color(track.colour if track.ties or len(rows) <= FEW else "black")
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(rows, [words.seconds(track.seconds) for track in picture.tracks], fontsize=8)
    beside.tick_params(length=0)
    axes.text(1.01, 1.01, "per run", transform=axes.transAxes, fontsize=8, color=GREY)
    beside.spines["right"].set_visible(False)


def _literal(text: str) -> str:
    """Text in which matplotlib sees no formula."""
    return text.replace("$", r"\$")


def _plotly(path: Path, picture: _Picture) -> None:
    from plotly.subplots import make_subplots  # noqa: PLC0415 - an extra

    figure = make_subplots(rows=1, cols=2, subplot_titles=(picture.left, picture.right), horizontal_spacing=0.2)
    for row, track in reversed(list(enumerate(picture.tracks))):
        _plotly_track(figure, picture.scale, row, track)
    figure.add_hrect(*picture.band, fillcolor=BAND, line_width=0, layer="below", row=1, col=1)
    figure.add_vrect(*picture.band, fillcolor=BAND, line_width=0, layer="below", row=1, col=2)
    rounds = [n for n in ROUNDS if n <= picture.rounds]
    figure.update_xaxes(title="round", type="log", tickvals=rounds, row=1, col=1)
    for update, limits, column in (
        (figure.update_yaxes, picture.on_the_way(), 1),
        (figure.update_xaxes, picture.at_the_end(), 2),
    ):
        marks = picture.scale.marks(*limits)
        said = {"tickvals": list(marks), "ticktext": list(marks.values()), "zeroline": False}
        update(title=picture.ratio, range=limits, **said, row=1, col=column)
    names = [escape(track.name) for track in picture.tracks]
    rows = {"tickvals": list(range(len(names))), "ticktext": names, "range": (len(names) - 0.4, -0.6)}
    figure.update_yaxes(**rows, row=1, col=2)
    height = max(520, 180 + 22 * len(names))
    figure.update_layout(title=escape(picture.title), template="plotly_white", showlegend=False, height=height)
    figure.write_html(path, include_plotlyjs=True)


def _plotly_track(figure: Any, scale: Scale, row: int, track: Track) -> None:
    """One contestant in both halves of the picture; hovering tells its numbers."""
    name, colour, end = escape(track.name), track.colour, track.standing
    numbers = list(range(1, len(track.ratios) + 1))
    places, centres = [scale(x) for x in track.ratios], [scale(x) for x in track.centres]
    told = {
        "text": [f"{x:.4g}x" for x in track.ratios],
        "hovertemplate": f"{name}<br>round %{{x}}: %{{text}}<extra></extra>",
    }
    if not track.leads:
        figure.add_scatter(x=numbers, y=places, mode="markers", marker={"color": colour, "size": 5, "opacity": 0.4},
                           **told, row=1, col=1)  # fmt: skip
    line = {"color": colour, "width": 3 if track.leads else 2}
    figure.add_scatter(x=numbers, y=centres, mode="lines", line=line, hoverinfo="skip", row=1, col=1)
    if not track.ties:
        mark = {"symbol": "x-thin", "size": 8, "line": {"color": colour, "width": 2}}
        figure.add_scatter(x=numbers[-1:], y=centres[-1:], mode="markers", marker=mark, hoverinfo="skip", row=1, col=1)
    place, said, bars = scale(end.ratio), f"{name}<br>{words.seconds(track.seconds)}, {end.ratio:.4g}x", None
    if bounded(end):
        said += f" ({end.low:.4g} to {end.high:.4g})"
        bars = {"type": "data", "array": [scale(end.high) - place], "arrayminus": [place - scale(end.low)], "width": 0}
    mark = {"color": colour, "size": 9, "symbol": "circle" if bars else "circle-open"}
    figure.add_scatter(x=[place], y=[row], mode="markers", marker=mark, error_x=bars,
                       hovertemplate=f"{said}<extra></extra>", row=1, col=2)  # fmt: skip
