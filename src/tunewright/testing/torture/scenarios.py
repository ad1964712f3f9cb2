"""Scenarios: problems whose truth is known, and the weather they are tuned in.

Every problem has eight candidates in random order; the fastest takes 30 us to 1 ms. Where there is a clear winner, each
is 3 % to 10 % slower than the one before it, and the default is any of the eight. In a near tie two to four are within
1 % of the fastest and the rest 5 % to 60 % slower; the default is among the tied in every other problem, else among the
rest. In a crowd all are within 6 % of the fastest, and the default is any: whatever margin a tuner calls a tie, someone
stands at its edge. The default always works.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import msgspec
import numpy as np
from numpy.random import Generator

from tunewright.testing.torture import weather
from tunewright.testing.torture.machine import Truth
from tunewright.testing.torture.weather import Weather

CANDIDATES = 8


class Scenario(msgspec.Struct, frozen=True):
    """A kind of problem in one weather, or in several by turns."""

    name: str
    truths: Callable[[Generator, int], Truth]
    weathers: tuple[Weather, ...]

    def problem(self, number: int, seed: int) -> tuple[Truth, Weather]:
        """The truth of one problem, the same for every tuner, and its weather."""
        rng = np.random.default_rng(self.seeds(number, seed))
        return self.truths(rng, number), self.weathers[number % len(self.weathers)]

    def seeds(self, number: int, seed: int, *more: int) -> list[int]:
        """Seeds of what belongs to one problem of this scenario and no other."""
        return [seed, crc32(self.name.encode()), number, *more]


def clear_winner(rng: Generator, number: int) -> Truth:
    """Every candidate is at least 3 % faster than the next, so that whoever fails leaves a clear winner too."""
    factors = np.cumprod([1.0, *rng.uniform(1.03, 1.1, CANDIDATES - 1)])
    return _shuffled(rng, factors.tolist(), int(rng.integers(CANDIDATES)))


def near_tie(rng: Generator, number: int) -> Truth:
    """Two to four candidates are within 1 % of the fastest, in every other problem the default among them."""
    tied = int(rng.integers(2, 5))
    factors = [1.0, *rng.uniform(1, 1.01, tied - 1), *rng.uniform(1.05, 1.6, CANDIDATES - tied)]
    return _shuffled(rng, factors, int(rng.integers(tied) if number % 2 == 0 else rng.integers(tied, CANDIDATES)))


def crowd(rng: Generator, number: int) -> Truth:
    """All candidates are within 6 % of the fastest, anywhere."""
    return _shuffled(rng, [1.0, *rng.uniform(1, 1.06, CANDIDATES - 1)], int(rng.integers(CANDIDATES)))


def crashing(rng: Generator, number: int) -> Truth:
    """One or two candidates crash, half of them at the first launch, the others within seven."""
    truth = clear_winner(rng, number)
    return msgspec.structs.replace(
        truth, crashes={i: int(rng.integers(1, 7)) * int(rng.integers(2)) for i in _some_others(rng, truth)}
    )


def refusing(rng: Generator, number: int) -> Truth:
    """One or two candidates ask for more than the device has."""
    truth = clear_winner(rng, number)
    return msgspec.structs.replace(truth, refused=frozenset(_some_others(rng, truth)))


def _shuffled(rng: Generator, factors: list[float], default: int) -> Truth:
    order = rng.permutation(len(factors))
    base = np.exp(rng.uniform(np.log(30e-6), np.log(1e-3)))
    return Truth(tuple(float(base * factors[i]) for i in order), int(np.flatnonzero(order == default)[0]))


def _some_others(rng: Generator, truth: Truth) -> list[int]:
    others = [i for i in range(CANDIDATES) if i != truth.default]
    return [int(i) for i in rng.choice(others, int(rng.integers(1, 3)), replace=False)]


NEAR_TIES = Scenario("near ties", near_tie, weather.NATURAL)
"""What tunings flip on: candidates that hardly differ, in every weather by turns."""

CROWD = Scenario("crowd", crowd, weather.NATURAL)
CRASHES = Scenario("crashes", crashing, (weather.NOISE,))
REFUSALS = Scenario("refusals", refusing, (weather.NOISE,))
CLEAR_WINNERS = tuple(
    Scenario(one.name, clear_winner, (one,)) for one in (*weather.NATURAL, weather.POISONED, weather.UNREADABLE)
)
SCENARIOS = (*CLEAR_WINNERS, CRASHES, REFUSALS, NEAR_TIES, CROWD)
