"""Race: interleaved rounds, paired comparison, elimination; a leader and those that tie with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunewright.measure.stats import paired

Visit = Callable[[], float]
"""Runs a candidate for a moment, and returns its seconds per launch."""

GROSS = 1.3
"""How many times slower than the best of both first rounds a candidate may be without leaving at once."""

FIRST_TEST = 6


class Standing(msgspec.Struct, frozen=True):
    """How one candidate did: its samples, and its time over the leader's with an interval.

    `left` is the round after which it was eliminated; None if it stayed to the end.
    """

    samples: tuple[float, ...]
    ratio: float
    low: float
    high: float
    left: int | None = None


class Race(msgspec.Struct, frozen=True):
    """What a race showed: who leads, and how everyone stands to the leader.

    `settled` says that nobody left can be more than `margin` faster than the leader; if it is False, the rounds or
    the seconds ended first.
    """

    leader: int
    standings: tuple[Standing, ...]
    margin: float
    settled: bool

    @property
    def tested(self) -> bool:
        """Whether there were rounds enough to compare anything but gross differences."""
        return self.settled or len(self.standings[self.leader].samples) >= FIRST_TEST

    @property
    def ties(self) -> list[int]:
        """Those that were never shown to be slower than the leader; it is one of them."""
        return [i for i, standing in enumerate(self.standings) if standing.left is None]


class Terms(msgspec.Struct, frozen=True):
    """What a race aims at and what it may cost."""

    margin: float = 0.01
    rounds: int = 200
    seconds: float = 10.0
    seed: int = 0


def run(visits: Sequence[Visit], terms: Terms | None = None) -> Race:
    """Race candidates against each other, each round in a new random order.

    All that are left run in every round, so that a comparison is between neighbours in time: drift, clocks and other
    people's work strike both sides alike. Gross losers leave after two rounds; from the sixth on, whoever is slower
    than the leader beyond doubt. It ends when nobody left can be more than the margin faster.
    """
    terms = terms or Terms()
    rng = np.random.default_rng(terms.seed)
    logs: list[list[float]] = [[] for _ in visits]
    left: dict[int, int] = {}
    began, settled = time.monotonic(), len(visits) == 1
    for number in range(1, terms.rounds + 1):
        fresh = {}
        for i in rng.permutation([i for i in range(len(visits)) if i not in left]):
            if number > 1 and time.monotonic() - began > terms.seconds:
                break
            fresh[int(i)] = float(np.log(visits[i]()))
        if len(fresh) < len(visits) - len(left):
            break  # out of time: a round that not everyone ran compares nobody
        for i, log in fresh.items():
            logs[i].append(log)
        if settled:
            break
        staying = [i for i in range(len(visits)) if i not in left]
        leader = _leader(logs, staying)
        if number == 2:
            gross = np.log(GROSS)
            best = min(max(logs[i]) for i in staying)
            left |= {i: number for i in staying if min(logs[i]) > best + gross}
        elif number >= FIRST_TEST:
            apart = {i: paired(_difference(logs, i, leader)) for i in staying if i != leader}
            left |= {i: number for i, (_, low, _) in apart.items() if low > 0}
            settled = all(low > -np.log1p(terms.margin) for _, low, _ in apart.values())
        if settled:
            break
    return _result(logs, left, terms.margin, settled)


def _leader(logs: Sequence[Sequence[float]], staying: Sequence[int]) -> int:
    """The lowest centre, after taking out of each round what it did to everyone."""
    table = np.array([logs[i] for i in staying])
    table = table - np.median(table, axis=0)
    return staying[int(np.argmin(np.median(table, axis=1)))]


def _difference(logs: Sequence[Sequence[float]], one: int, other: int) -> NDArray[np.float64]:
    """Log ratios of two candidates over the rounds in which both ran."""
    both = min(len(logs[one]), len(logs[other]))
    return np.subtract(logs[one][:both], logs[other][:both], dtype=np.float64)


def _result(logs: Sequence[Sequence[float]], left: dict[int, int], margin: float, settled: bool) -> Race:
    staying = [i for i in range(len(logs)) if i not in left]
    leader = _leader(logs, staying)
    standings = []
    for i, own in enumerate(logs):
        centre, low, high = paired(_difference(logs, i, leader)) if i != leader else (0.0, 0.0, 0.0)
        ratio, low, high = (float(np.exp(x)) for x in (centre, low, high))
        standings.append(Standing(tuple(float(x) for x in np.exp(own)), ratio, low, high, left.get(i)))
    return Race(leader, tuple(standings), margin, settled)
