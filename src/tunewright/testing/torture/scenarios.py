"""Scenarios: problems of known truth with disturbances.

Every problem has eight candidates in random order; the fastest takes 30 us to 1 ms. Where there is a clear winner, each
is 3 % to 10 % slower than the one before it, and the default is any of the eight. In a near tie two to four are within
1 % of the fastest and the rest 5 % to 60 % slower; the default is among the tied in every other problem, else among the
rest. In a crowd all are within 6 % of the fastest, and the default is any: whatever margin a tuner calls a tie, some
candidate is at its edge. The default always works.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import msgspec
import numpy as np
from numpy.random import Generator

from tunewright.testing.torture import disturbances
from tunewright.testing.torture.disturbances import Disturbance
from tunewright.testing.torture.machine import Truth

CANDIDATES = 8


class Scenario(msgspec.Struct, frozen=True):
    """A kind of problem with one disturbance, or several in turn."""

    name: str
    truths: Callable[[Generator, int], Truth]
    disturbances: tuple[Disturbance, ...]

    def problem(self, number: int, seed: int) -> tuple[Truth, Disturbance]:
        """Returns the truth of one problem, the same for every tuner, and its disturbance."""
        rng = np.random.default_rng(self.seeds(number, seed))
        return self.truths(rng, number), self.disturbances[number % len(self.disturbances)]

    def seeds(self, number: int, seed: int, *extra: int) -> list[int]:
        """Returns the seeds of one problem of this scenario."""
        return [seed, crc32(self.name.encode()), number, *extra]


def clear_winner(rng: Generator, number: int) -> Truth:
    """Every candidate is at least 3 % faster than the next, so that there is a clear winner also if some fail."""
    factors = np.cumprod([1.0, *rng.uniform(1.03, 1.1, CANDIDATES - 1)])
    return _shuffled(rng, factors.tolist(), int(rng.integers(CANDIDATES)))


def near_tie(rng: Generator, number: int) -> Truth:
    """Two to four candidates are within 1 % of the fastest, including the default in every other problem."""
    tied = int(rng.integers(2, 5))
    factors = [1.0, *rng.uniform(1, 1.01, tied - 1), *rng.uniform(1.05, 1.6, CANDIDATES - tied)]
    return _shuffled(rng, factors, int(rng.integers(tied) if number % 2 == 0 else rng.integers(tied, CANDIDATES)))


def crowd(rng: Generator, number: int) -> Truth:
    """All candidates are within 6 % of the fastest, anywhere."""
    return _shuffled(rng, [1.0, *rng.uniform(1, 1.06, CANDIDATES - 1)], int(rng.integers(CANDIDATES)))


def crashing(rng: Generator, number: int) -> Truth:
    """One or two candidates crash, half of them at the first launch, the others within seven launches."""
    truth = clear_winner(rng, number)
    return msgspec.structs.replace(
        truth, crashes={i: int(rng.integers(1, 7)) * int(rng.integers(2)) for i in _pick_failing(rng, truth)}
    )


def refusing(rng: Generator, number: int) -> Truth:
    """One or two candidates ask for more than the device has."""
    truth = clear_winner(rng, number)
    return msgspec.structs.replace(truth, refused=frozenset(_pick_failing(rng, truth)))


def _shuffled(rng: Generator, factors: list[float], default: int) -> Truth:
    order = rng.permutation(len(factors))
    base = np.exp(rng.uniform(np.log(30e-6), np.log(1e-3)))
    return Truth(tuple(float(base * factors[i]) for i in order), int(np.flatnonzero(order == default)[0]))


def _pick_failing(rng: Generator, truth: Truth) -> list[int]:
    others = [i for i in range(CANDIDATES) if i != truth.default]
    return [int(i) for i in rng.choice(others, int(rng.integers(1, 3)), replace=False)]


NEAR_TIES = Scenario("near ties", near_tie, disturbances.NATURAL)
"""Candidates that hardly differ, with every disturbance in turn: here tunings flip."""

CROWD = Scenario("crowd", crowd, disturbances.NATURAL)
CRASHES = Scenario("crashes", crashing, (disturbances.NOISE,))
REFUSALS = Scenario("refusals", refusing, (disturbances.NOISE,))
CLEAR_WINNERS = tuple(
    Scenario(disturbance.name, clear_winner, (disturbance,))
    for disturbance in (*disturbances.NATURAL, disturbances.POISONED, disturbances.UNREADABLE)
)
SCENARIOS = (*CLEAR_WINNERS, CRASHES, REFUSALS, NEAR_TIES, CROWD)
