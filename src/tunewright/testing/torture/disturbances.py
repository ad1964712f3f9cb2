"""Disturbances of a simulated machine: slowdowns over time, jitter of launches, and clock errors."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Steps = Callable[[int], tuple[Floats, Floats]]
"""Returns the next steps of a slowdown: the duration and the factor of each."""


class Disturbance(msgspec.Struct, frozen=True):
    """What disturbs a run: slowdowns over time, the jitter of each launch, and errors of the clock."""

    name: str
    slowdown: Callable[[Generator], Steps]
    jitter: Callable[[Generator, int], Floats]
    misread: Callable[[Generator, Floats], Floats] = lambda rng, seconds: seconds


class Timeline:
    """A slowdown over time, drawn step by step, and the work that can be done until each time."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._times, self._works = np.zeros(1), np.zeros(1)

    def end_times(self, start: float, work: Floats) -> Floats:
        """Returns when pieces of work end, one after another from `start` on; `work` is their undisturbed time."""
        while self._times[-1] <= start:
            self._extend()
        done = float(np.interp(start, self._times, self._works)) + np.cumsum(work)
        while self._works[-1] <= done[-1]:
            self._extend()
        return np.interp(done, self._works, self._times)

    def _extend(self) -> None:
        """Draw twice as many steps."""
        durations, factors = self._steps(max(64, len(self._times)))
        self._times = np.append(self._times, self._times[-1] + np.cumsum(durations))
        self._works = np.append(self._works, self._works[-1] + np.cumsum(durations / factors))


def no_slowdown(rng: Generator) -> Steps:
    """No slowdown."""
    return lambda count: (np.full(count, 1e3), np.ones(count))


def drift(rng: Generator) -> Steps:
    """20 % slower within two seconds, and back within two more, repeatedly: a machine that warms and cools."""
    tick, at = 0.01, rng.uniform(0, 4)

    def steps(count: int) -> tuple[Floats, Floats]:
        nonlocal at
        times = at + tick * np.arange(count)
        at += tick * count
        return np.full(count, tick), 1 + 0.2 * np.abs(times % 4 / 2 - 1)

    return steps


def throttling(rng: Generator) -> Steps:
    """Clock rates that change about every 0.3 seconds to one of four levels, up to 1.5 times slower."""
    return lambda count: (rng.exponential(0.3, count), rng.choice([1.0, 1.1, 1.25, 1.5], count))


def contention(rng: Generator) -> Steps:
    """Another process that is idle for about 60 ms, then slows everything 1.2 to 2 times for about 20 ms."""

    def steps(count: int) -> tuple[Floats, Floats]:
        idle, busy = rng.exponential(0.06, count), rng.exponential(0.02, count)
        return np.ravel([idle, busy], "F"), np.ravel([np.ones(count), rng.uniform(1.2, 2, count)], "F")

    return steps


def modes(rng: Generator) -> Steps:
    """Two modes of about 5 ms each; the slow one is 25 % slower and active a third of the time."""
    return lambda count: (rng.exponential(0.005, count), rng.choice([1.0, 1.0, 1.25], count))


def noise(share: float) -> Callable[[Generator, int], Floats]:
    """Returns log-normal jitter of launches."""
    return lambda rng, count: np.exp(rng.normal(0, share, count))


def tails(rng: Generator, count: int) -> Floats:
    """Heavy-tailed jitter without finite variance: a few launches take far longer."""
    return 1 + 0.03 * rng.pareto(1.5, count)


def too_low(rng: Generator, seconds: Floats) -> Floats:
    """A clock that reads a hundredth of the time, or zero, once in a hundred readings."""
    lowered = np.where(rng.random(len(seconds)) < 0.5, 0.0, seconds / 100)
    return np.where(rng.random(len(seconds)) < 0.01, lowered, seconds)


def not_a_number(rng: Generator, seconds: Floats) -> Floats:
    """A clock that reads NaN once in a hundred readings."""
    return np.where(rng.random(len(seconds)) < 0.01, np.nan, seconds)


QUIET = Disturbance("quiet", no_slowdown, noise(0.003))
NOISE = Disturbance("noise", no_slowdown, noise(0.05))
DRIFT = Disturbance("drift", drift, noise(0.01))
THROTTLING = Disturbance("throttling", throttling, noise(0.01))
CONTENTION = Disturbance("contention", contention, noise(0.01))
TAILS = Disturbance("heavy tails", no_slowdown, tails)
MODES = Disturbance("two modes", modes, noise(0.01))
POISONED = Disturbance("poisoned", no_slowdown, noise(0.01), too_low)
UNREADABLE = Disturbance("unreadable", no_slowdown, noise(0.01), not_a_number)

NATURAL = (QUIET, NOISE, DRIFT, THROTTLING, CONTENTION, TAILS, MODES)
"""Disturbances with a correct clock."""
