"""What a race saves and how often it is right, beside other ways to choose, on the tutorial's matrix product in C.

    python benchmarks/racing.py [--quick] [--json] [--only idle|loaded] [--plot FILE]

Each repeat draws its configs from a larger set that was compiled and verified before, and lets every method choose
among them, in random order, so that the machine's mood strikes all:

- fixed: as Triton's `do_bench` does: one launch, 5 to estimate, 25 ms of warm-up, 100 ms of launches timed one by one;
  the least median wins. Its flush of the cache is left out: the blocks are hot.
- interleaved: every config once in each round, in random order; the least median of times over the round's wins. Judged
  after a few rounds, about as dear as the race, and after many.
- race: `tunewright.measure.race` with a span of 15 seconds; its leader. Also as the library decides: the first in
  canonical order among those that tie with the leader within the margin.
- kernel_tuner: as Kernel Tuner 1.5.0 does with C: the mean of 7 launches, after the one that checks the results.

Launches are hot (after others of the same config), or in context (single, after other work): the library's regimes.
Methods and truth are timed in either; only the blocks are always hot, and what they choose is judged by both truths.
The truth comes from interleaved rounds before, between and after the methods, on samples that none of them sees. A
choice is right if its truth is within 1 % of the best of its repeat. A repeat with one config in that range is called
separable, any other a near tie. Kernel seconds are CPU seconds spent in launches, those that are discarded included;
the saving is the ratio of medians, fixed over race.

Once with the other core idle, once with a neighbour on it that streams memory. The full run takes about an hour.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from figures import Goal, Report, Series, parser
from gemm_space import MARGIN, Candidate, Metered, Standing, Truth, candidates, neighbour, one_round
from numpy.typing import NDArray

from tunewright.measure import race
from tunewright.measure.clock import Regime, Sampler, make_sampler

SIZE = 256
SPARE = 1.5
"""Compiled configs for each one of a repeat: winners differ between repeats, so that no single one decides."""

FEW, MANY = 5, 10
SECONDS, SPAN = 30.0, 15.0
"""The longest race, and the seconds over which close candidates are raced, as after a search of two minutes or more."""

LOADS, REGIMES = ("idle", "loaded"), (Regime.HOT, Regime.CONTEXT)
GOALS = tuple(
    Goal(f"{load}.{figure}", ">=", bound) for load in LOADS for figure, bound in (("saving", 6), ("p_race", 0.9))
)


@dataclass(frozen=True)
class Field:
    """The configs of one repeat: their places in the whole set, their ranks and timers."""

    places: Sequence[int]
    ranks: Sequence[tuple[int, ...]]
    timers: Sequence[Metered]
    seed: int

    def visits(self, regime: Regime) -> list[Sampler]:
        return [make_sampler(timer, None, regime) for timer in self.timers]


@dataclass(frozen=True)
class Choice:
    """Which config a method chose, where in the whole set it is, and what it cost."""

    method: str
    regime: Regime
    place: int
    kernel_s: float
    wall_s: float


Chosen = Iterator[tuple[str, int]]
"""Names of methods and numbers within the field, each as soon as it is chosen."""


def fixed(field: Field, regime: Regime) -> Chosen:
    """Blocks of 25 + 100 ms, one config after the other."""
    centres = []
    for timer in field.timers:
        timer(1)
        estimate = timer(5) / 5
        for _ in range(max(1, int(0.025 / estimate))):
            timer(1)
        centres.append(median(timer(1) for _ in range(max(1, int(0.1 / estimate)))))
    yield "fixed", int(np.argmin(centres))


def kernel_tuner(field: Field, regime: Regime) -> Chosen:
    """The mean of seven launches, one config after the other."""

    def once(timer: Metered) -> float:
        if regime is Regime.CONTEXT:
            timer.flush(whole=False)
        return timer(1)

    centres = []
    for timer in field.timers:
        once(timer)
        centres.append(mean(once(timer) for _ in range(7)))
    yield "kernel_tuner", int(np.argmin(centres))


def interleaved(field: Field, regime: Regime) -> Chosen:
    """Rounds without elimination, judged after a few and after many."""
    rng, visits = np.random.default_rng(field.seed), field.visits(regime)
    rounds: list[NDArray[np.float64]] = []
    while len(rounds) < MANY:
        seconds = one_round(visits, rng)
        rounds.append(seconds / np.median(seconds))
        if len(rounds) in (FEW, MANY):
            yield f"interleaved_{len(rounds)}", int(np.argmin(np.median(rounds, axis=0)))


def raced(field: Field, regime: Regime) -> Chosen:
    """The library's race: its leader, and what the library would decide."""
    found = race.run_race(field.visits(regime), race.RaceOptions(seconds=SECONDS, seed=field.seed, span=SPAN))
    equal = [i for i in found.ties if found.equal(i)]
    yield "race", found.leader
    yield "race_decided", min(equal, key=lambda i: field.ranks[i])


TURNS: list[tuple[Callable[[Field, Regime], Chosen], Regime]] = [
    (fixed, Regime.HOT),
    *((method, regime) for method in (interleaved, raced, kernel_tuner) for regime in REGIMES),
]


@dataclass(frozen=True)
class Effort:
    """How much is measured: configs of a repeat, repeats, rounds of a block of truth."""

    configs: int
    repeats: int
    rounds: int


@dataclass(frozen=True)
class Measured:
    """What happened under one load: the configs of each repeat, what was chosen, and the truth in each regime."""

    fields: list[list[int]]
    choices: list[Choice]
    truths: dict[Regime, Truth]


def measure(made: Sequence[Candidate], effort: Effort, load: str) -> Measured:
    """All repeats under one load, with blocks of truth before, between and after the methods."""
    timers, rng = [Metered(candidate.timer) for candidate in made], np.random.default_rng(effort.configs)
    done = Measured([], [], {regime: Truth(timers, regime) for regime in REGIMES})
    for number in range(effort.repeats):
        say(f"{load}: repeat {number + 1} of {effort.repeats}")
        places = sorted(rng.choice(len(made), effort.configs, replace=False).tolist())
        field = Field(places, [made[i].rank for i in places], [timers[i] for i in places], number)
        done.fields.append(places)
        for turn in rng.permutation(len(TURNS)):
            for truth in done.truths.values():
                truth.follow(effort.rounds)
            method, regime = TURNS[turn]
            spent, began = Metered.spent, time.monotonic()
            for name, i in method(field, regime):
                cost = Metered.spent - spent, time.monotonic() - began
                done.choices.append(Choice(name, regime, places[i], *cost))
    for truth in done.truths.values():
        truth.follow(effort.rounds)
    return done


def judge(done: Measured, regime: Regime) -> dict[str, Any]:
    """Figures of one load and regime."""
    standings = [done.truths[regime].among(places) for places in done.fields]
    separable = [standing.within == 1 for standing in standings]
    judged: dict[str, list[Choice]] = {}
    for choice in done.choices:
        if choice.regime is regime or choice.method == "fixed":
            judged.setdefault(choice.method, []).append(choice)
    methods = {name: verdict(choices, standings, separable) for name, choices in judged.items()}
    saving = methods["fixed"]["kernel_s"]["median"] / methods["race"]["kernel_s"]["median"]
    return {
        "saving": round(saving, 1),
        **{f"p_{name}": said["p"] for name, said in methods.items()},
        "configs": len(done.fields[0]),
        "repeats": len(standings),
        "separable": sum(separable),
        "within_margin": Series(standing.within for standing in standings).plain(),
        "untold": Series(standing.untold for standing in standings).plain(),
        "truth_error": round(median(standing.error for standing in standings), 4),
        "unrest": round(done.truths[regime].unrest, 2),
        "methods": methods,
    }


def verdict(choices: Sequence[Choice], standings: Sequence[Standing], separable: Sequence[bool]) -> dict[str, Any]:
    """How often one method is right, what it loses and what it costs.

    `p_unrefuted` also counts choices that the truth, given its own error, cannot tell from right ones.
    """
    losses = [standing.ratios[c.place] - 1 for standing, c in zip(standings, choices, strict=True)]
    right = [loss <= MARGIN for loss in losses]
    unrefuted = [standing.lows[c.place] <= 1 + MARGIN for standing, c in zip(standings, choices, strict=True)]
    return {
        "p": share(right),
        "p_separable": share([r for r, easy in zip(right, separable, strict=True) if easy]),
        "p_near_ties": share([r for r, easy in zip(right, separable, strict=True) if not easy]),
        "p_unrefuted": share(unrefuted),
        "loss_mean": round(mean(losses), 4),
        "loss_worst": round(max(losses), 4),
        "losses": [round(loss, 4) for loss in losses],
        "kernel_s": Series(choice.kernel_s for choice in choices).plain(),
        "wall_s": Series(choice.wall_s for choice in choices).plain(),
    }


def share(right: Sequence[bool]) -> float | None:
    """How many are right; None of none."""
    return round(mean(right), 3) if right else None


def table(name: str, said: dict[str, Any]) -> list[str]:
    """One load and regime, for people."""
    shares = ("p", "p_separable", "p_near_ties", "p_unrefuted")
    heads = ("kernel s", "right", "separable", "near ties", "unrefuted", "loss", "worst")
    rows = [
        f"{name}: {said['repeats']} repeats of {said['configs']} configs, {said['separable']} of them separable",
        f"  within 1 % of the best: {said['within_margin']['median']:g}; not to be told from it: "
        f"{said['untold']['median']:g}; the truth's own error: {said['truth_error']:.1%}; "
        f"slow moments took {said['unrest']:.2f} times as long as fast ones",
        " " * 18 + "".join(f"{head:>11}" for head in heads),
    ]
    for method, one in sorted(said["methods"].items(), key=lambda item: -item[1]["kernel_s"]["median"]):
        cells = [f"{one['kernel_s']['median']:.2f}"]
        cells += ["-" if one[key] is None else f"{one[key]:.2f}" for key in shares]
        cells += [f"{one[key]:.1%}" for key in ("loss_mean", "loss_worst")]
        rows.append(f"  {method:<16}" + "".join(f"{cell:>11}" for cell in cells))
    return [*rows, f"  the race takes {said['saving']:.1f} times fewer kernel seconds than fixed blocks"]


COLOURS = {
    "race": "#2563eb",
    "race_decided": "#60a5fa",
    "fixed": "#ea580c",
    f"interleaved_{MANY}": "#374151",
    f"interleaved_{FEW}": "#9ca3af",
    "kernel_tuner": "#16a34a",
}


def draw(path: Path, figures: dict[str, Any]) -> None:
    """A panel for each load: what a choice costs, and how often it is right; full marks hot, hollow ones in context."""
    from matplotlib import pyplot as plt
    from matplotlib.lines import Line2D

    loads = [load for load in LOADS if load in figures]
    figure, axes = plt.subplots(1, len(loads), figsize=(4.4 * len(loads) + 1.6, 3.9), sharey=True, squeeze=False)
    for axis, load in zip(axes[0], loads, strict=True):
        axis.axhline(0.9, color="#cbd5e1", linewidth=1, linestyle="--", zorder=0)
        for name, filled in ((load, True), (f"{load}_context", False)):
            for method, one in figures[name]["methods"].items():
                mark(axis, method, one, filled=filled)
        axis.set(xscale="log", xlabel="kernel seconds for one choice", ylim=(-0.03, 1.03))
        axis.set_title("other core idle" if load == "idle" else "other core busy", fontsize=10)
        axis.set_xticks([1, 2, 5, 10, 20], labels=["1", "2", "5", "10", "20"])
        axis.set_xticks([], minor=True)
        axis.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("choices within 1 % of the best")
    keys = [Line2D([], [], marker="o", linestyle="", color=colour) for colour in COLOURS.values()]
    keys += [
        Line2D([], [], marker="o", linestyle="", color="#374151", markerfacecolor=face) for face in ("#374151", "w")
    ]
    labels = [*(method.replace("_", " ") for method in COLOURS), "hot", "in context"]
    figure.legend(keys, labels, loc="center right", frameon=False, fontsize=9)
    said = figures[loads[0]]
    figure.suptitle(f"One of {said['configs']} configs of a gemm in C, chosen {said['repeats']} times", fontsize=11)
    figure.tight_layout(rect=(0, 0, 1 - 1.5 / figure.get_figwidth(), 1))
    figure.savefig(path, dpi=150)
    plt.close(figure)


def mark(axis: Any, method: str, one: dict[str, Any], *, filled: bool) -> None:
    """One method: its typical cost, its share of right choices, and where that share may lie (Wilson, 1927)."""
    count, p, z = len(one["losses"]), one["p"], 1.96
    middle = (p + z * z / 2 / count) / (1 + z * z / count)
    reach = z * ((p * (1 - p) + z * z / 4 / count) / count) ** 0.5 / (1 + z * z / count)
    seconds, colour = one["kernel_s"]["median"], COLOURS[method]
    axis.plot([seconds, seconds], [middle - reach, middle + reach], color=colour, alpha=0.3, linewidth=1.5, zorder=1)
    size, face = (7, colour) if filled else (11, "none")  # a ring around what costs and hits the same
    rank = 3 if method == "race" else 2
    axis.plot(seconds, p, marker="o", markersize=size, color=colour, markerfacecolor=face, zorder=rank)


def say(line: str) -> None:
    """Progress, apart from the report."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, measure, judge, report."""
    takes = parser(__doc__)
    takes.add_argument("--configs", type=int, help="in each repeat; 200, or 16 if quick")
    takes.add_argument("--repeats", type=int, help="20, or 2 if quick")
    takes.add_argument("--only", choices=LOADS, help="one load instead of both")
    takes.add_argument("--plot", type=Path, metavar="FILE", help="draw it, too")
    given = takes.parse_args(arguments)
    usual = Effort(16, 2, 5) if given.quick else Effort(200, 20, 10)
    effort = Effort(given.configs or usual.configs, given.repeats or usual.repeats, usual.rounds)
    report, cores = Report(), sorted(os.sched_getaffinity(0))
    made = candidates(int(SPARE * effort.configs), SIZE)
    say(f"{len(made)} configs compiled and verified")
    os.sched_setaffinity(0, {cores[-1]})
    for load in LOADS:
        if given.only not in (None, load):
            continue
        if load == "loaded" and len(cores) == 1:
            report.lines.append("there is no other core to load")
            continue
        with neighbour(cores[0]) if load == "loaded" else nullcontext():
            done = measure(made, effort, load)
        for regime in REGIMES:
            name = load if regime is Regime.HOT else f"{load}_{regime}"
            report.figures[name] = judge(done, regime)
            report.lines += table(name, report.figures[name])
    if given.plot:
        draw(given.plot, report.figures)
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
