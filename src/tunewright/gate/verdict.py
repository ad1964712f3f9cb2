"""The verdict of a gate: pairs of samples are drawn until it is clear whether the second side is slower."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from math import exp, log, log1p
from typing import Protocol

import msgspec
import numpy as np

from tunewright.errors import SettingsError
from tunewright.pools.command_times import UNDELAYED, WALL, ProcessTimes, choose_clock
from tunewright.stats import paired, trimmed_mean

MIN_PAIRS = 12
"""Pairs before the first verdict; fewer could hardly prove anything."""

PROBE_PAIRS = 3
"""Pairs from which the clock is chosen."""

BUSY_LOAD = 1.5
"""Load for each processor from which the machine itself is named as what disturbs."""

Pair = tuple[ProcessTimes, ProcessTimes]
"""Times of the first and the second side, measured one right after the other."""


class GateOutcome(StrEnum):
    """What a gate found out."""

    SLOWER = "slower"
    NOT_SLOWER = "not slower"
    UNKNOWN = "unknown"


class GateOptions(msgspec.Struct, frozen=True):
    """The slow-down that must be found, and the limits of a gate.

    A slow-down of `by` is found. One of less than half of it never fails: to tell `by` from nothing, the limit lies
    between the two.
    """

    by: float = 0.03
    seconds: float = 60.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.by < 1:
            raise SettingsError(f"a slow-down of {self.by:g} cannot be tested for; give a fraction, such as 0.03")
        if not self.seconds > 0:
            raise SettingsError(f"{self.seconds:g} seconds are no time to race in; give more than 0")


class GateResult(msgspec.Struct, frozen=True):
    """The outcome of a gate: times of the second side relative to the first, with an interval, and what they rest on.

    The interval holds for every moment at which the gate might have stopped. `samples` are seconds by the `clock`.
    """

    outcome: GateOutcome
    ratio: float
    low: float
    high: float
    by: float
    pairs: int
    elapsed: float
    clock: str
    load: float
    samples: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())

    @property
    def seconds(self) -> tuple[float, float]:
        """The typical time of each side."""
        first, second = (float(np.median(own)) if own else 0.0 for own in self.samples)
        return first, second

    def sentence(self) -> str:
        """Returns what was found, in a sentence."""
        interval = f"{self.ratio:.3f} times as long ({self.low:.3f} to {self.high:.3f})"
        if self.outcome is GateOutcome.SLOWER:
            return f"slower: it takes {interval}, and {100 * self.by:g} % is too much"
        if self.outcome is GateOutcome.NOT_SLOWER:
            return f"not slower by {100 * self.by:g} %: it takes {interval}"
        if self.pairs < MIN_PAIRS:
            return f"not known: {self.pairs} pairs in {self.elapsed:.0f} s are too few to tell anything"
        return f"not known: it takes {interval}, which neither excludes nor shows {100 * self.by:g} %"

    def remedy(self) -> str:
        """Returns what to do about an unknown outcome; empty for the others."""
        if self.outcome is not GateOutcome.UNKNOWN:
            return ""
        if self.pairs < MIN_PAIRS:
            needed = f"about {self.elapsed / max(1, self.pairs) * 2 * MIN_PAIRS:.0f} s"
        else:
            width = log(self.high / self.low) / 2
            needed = f"about {self.elapsed * max(1.3, (2 * width / log1p(self.by)) ** 2):.0f} s"
        busy = self.load > BUSY_LOAD * (os.cpu_count() or 1)
        machine = f"; other programs keep this machine busy (load {self.load:.1f})" if busy else ""
        return f"give it more time ({needed}), or ask for a larger difference{machine}"


class Contest(Protocol):
    """Two sides that can be sampled in pairs."""

    def draw(self, swap: bool, seconds: float) -> Sequence[Pair]:
        """Returns pairs that share what lasts for the life of a process; with `swap`, the second side goes first.

        It should not take longer than `seconds`.
        """
        ...


def run_gate(
    contest: Contest, options: GateOptions | None = None, on_progress: Callable[[GateResult], None] | None = None
) -> GateResult:
    """Draws pairs until the second side is slower beyond doubt, or cannot be slower by that much, or time is over.

    The interval is that of races, which holds nearly simultaneously for all rounds: stopping at a good moment does not
    make it wrong. What all samples of a process share, such as where its memory lies, counts once.
    """
    options = options or GateOptions()
    rng, began = np.random.default_rng(options.seed), time.monotonic()
    draws = PairedSamples()
    while True:
        left = options.seconds - (time.monotonic() - began)
        if draws.count and left <= 0:
            break
        draws.add(contest.draw(bool(rng.integers(2)), max(left, 0.0)))
        result = judge(draws, options, time.monotonic() - began)
        if on_progress is not None:
            on_progress(result)
        if result.outcome is not GateOutcome.UNKNOWN:
            break
    return judge(draws, options, time.monotonic() - began, with_samples=True)


class PairedSamples:
    """All pairs that were drawn, and the log ratio of each draw by each clock."""

    def __init__(self, draws: Sequence[Sequence[Pair]] = ()) -> None:
        self._draws: list[Sequence[Pair]] = []
        self._ratios: dict[str, list[float]] = {WALL: [], UNDELAYED: []}
        for drawn in draws:
            self.add(drawn)

    @property
    def count(self) -> int:
        """How many draws there are."""
        return len(self._draws)

    @property
    def clock(self) -> str:
        """The clock by which the first draws can be compared, and so all."""
        return choose_clock([times for drawn in self._draws[:PROBE_PAIRS] for pair in drawn for times in pair])

    def add(self, drawn: Sequence[Pair]) -> None:
        """Adds a draw, which counts once, however many pairs it has."""
        self._draws.append(drawn)
        for clock, ratios in self._ratios.items():
            logs = [log(second.seconds(clock) / first.seconds(clock)) for first, second in drawn]
            ratios.append(float(trimmed_mean(np.sort(logs))))

    def bounds(self) -> tuple[float, float, float]:
        """Returns the log ratio of the second side to the first, with an interval."""
        return paired(np.array(self._ratios[self.clock]))

    def samples(self, side: int) -> tuple[float, ...]:
        """Returns the seconds of one side."""
        clock = self.clock
        return tuple(pair[side].seconds(clock) for drawn in self._draws for pair in drawn)


def judge(draws: PairedSamples, options: GateOptions, elapsed: float, *, with_samples: bool = False) -> GateResult:
    """Returns what these draws show."""
    center, low, high = draws.bounds()
    outcome = GateOutcome.UNKNOWN
    if draws.count >= MIN_PAIRS:
        if high < log1p(options.by):
            outcome = GateOutcome.NOT_SLOWER
        elif low > log1p(options.by / 2):
            outcome = GateOutcome.SLOWER
    return GateResult(
        outcome,
        exp(center),
        exp(low),
        exp(high),
        options.by,
        draws.count,
        elapsed,
        draws.clock,
        os.getloadavg()[0],
        (draws.samples(0), draws.samples(1)) if with_samples else ((), ()),
    )
