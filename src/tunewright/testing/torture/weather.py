"""Weather: what disturbs a simulated machine; each kind is drawn anew from a generator."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Steps = Callable[[int], tuple[Floats, Floats]]
"""The next so many steps of a sky: how long each lasts, and how many times slower everything is meanwhile."""


class Weather(msgspec.Struct, frozen=True):
    """What disturbs a run: the sky over everyone at a time, the jitter of each launch, the errors of the clock."""

    name: str
    sky: Callable[[Generator], Steps]
    jitter: Callable[[Generator, int], Floats]
    misread: Callable[[Generator, Floats], Floats] = lambda rng, seconds: seconds


class Sky:
    """Steps drawn as time comes to them, and the work that can be done under them; it goes on, whoever works."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._times, self._works = np.zeros(1), np.zeros(1)

    def ends(self, start: float, work: Floats) -> Floats:
        """When pieces of work are done, one after another from `start` on; each is given as it takes when clear."""
        while self._times[-1] <= start:
            self._look_ahead()
        done = float(np.interp(start, self._times, self._works)) + np.cumsum(work)
        while self._works[-1] <= done[-1]:
            self._look_ahead()
        return np.interp(done, self._works, self._times)

    def _look_ahead(self) -> None:
        """Twice as far as so far."""
        lasts, levels = self._steps(max(64, len(self._times)))
        self._times = np.append(self._times, self._times[-1] + np.cumsum(lasts))
        self._works = np.append(self._works, self._works[-1] + np.cumsum(lasts / levels))


def clear(rng: Generator) -> Steps:
    """A sky that slows nobody down."""
    return lambda count: (np.full(count, 1e3), np.ones(count))


def drift(rng: Generator) -> Steps:
    """20 % slower within two seconds, and back within two more, for ever: a machine that warms and cools."""
    tick, at = 0.01, rng.uniform(0, 4)

    def steps(count: int) -> tuple[Floats, Floats]:
        nonlocal at
        times = at + tick * np.arange(count)
        at += tick * count
        return np.full(count, tick), 1 + 0.2 * np.abs(times % 4 / 2 - 1)

    return steps


def throttling(rng: Generator) -> Steps:
    """Clocks that change every 0.3 seconds or so, to one of four levels up to half as slow again."""
    return lambda count: (rng.exponential(0.3, count), rng.choice([1.0, 1.1, 1.25, 1.5], count))


def contention(rng: Generator) -> Steps:
    """A neighbour who is idle for 60 ms or so, then makes everything 1.2 to 2 times slower for 20 ms or so."""

    def steps(count: int) -> tuple[Floats, Floats]:
        idle, busy = rng.exponential(0.06, count), rng.exponential(0.02, count)
        return np.ravel([idle, busy], "F"), np.ravel([np.ones(count), rng.uniform(1.2, 2, count)], "F")

    return steps


def modes(rng: Generator) -> Steps:
    """Two modes, the slow one by a quarter and a third of the time; 5 ms or so in each."""
    return lambda count: (rng.exponential(0.005, count), rng.choice([1.0, 1.0, 1.25], count))


def noise(share: float) -> Callable[[Generator, int], Floats]:
    """Launches that differ by a share, each from each."""
    return lambda rng, count: np.exp(rng.normal(0, share, count))


def tails(rng: Generator, count: int) -> Floats:
    """Launches of which a few take far longer: the tail is so heavy that it has no variance."""
    return 1 + 0.03 * rng.pareto(1.5, count)


def too_low(rng: Generator, seconds: Floats) -> Floats:
    """A clock that reads a hundredth of the time, or nothing at all, once in a hundred readings."""
    lowered = np.where(rng.random(len(seconds)) < 0.5, 0.0, seconds / 100)
    return np.where(rng.random(len(seconds)) < 0.01, lowered, seconds)


def not_a_number(rng: Generator, seconds: Floats) -> Floats:
    """A clock that reads no number once in a hundred readings."""
    return np.where(rng.random(len(seconds)) < 0.01, np.nan, seconds)


QUIET = Weather("quiet", clear, noise(0.003))
NOISE = Weather("noise", clear, noise(0.05))
DRIFT = Weather("drift", drift, noise(0.01))
THROTTLING = Weather("throttling", throttling, noise(0.01))
CONTENTION = Weather("contention", contention, noise(0.01))
TAILS = Weather("heavy tails", clear, tails)
MODES = Weather("two modes", modes, noise(0.01))
POISONED = Weather("poisoned", clear, noise(0.01), too_low)
UNREADABLE = Weather("unreadable", clear, noise(0.01), not_a_number)

NATURAL = (QUIET, NOISE, DRIFT, THROTTLING, CONTENTION, TAILS, MODES)
"""The weathers in which the clock is right."""
