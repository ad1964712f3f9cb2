"""Clock: which clock is honest for this kernel, and simple repeated timing by it."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from time import perf_counter, perf_counter_ns, process_time_ns
from typing import Any

from tunewright.model.trial import Timing
from tunewright.ports.backend import Timer

CLOCKS: dict[str, Callable[[], int]] = {"cpu": process_time_ns, "wall": perf_counter_ns}


LONG_ENOUGH = 1e-3
"""Seconds a sample must last for its clock to be trusted."""

MOST_AT_ONCE = 1 << 20

Restore = Callable[[], None]
"""Puts back what a launch changed."""


def honest(threads: int) -> str:
    """CPU time of the process for one thread (neighbours do not count, hidden threads do); else wall time."""
    return "cpu" if threads == 1 else "wall"


class HostTimer:
    """Times a call on the host."""

    def __init__(self, call: Callable[[], Any], threads: int) -> None:
        self.clock = honest(threads)
        self._now = CLOCKS[self.clock]
        self._call = call

    def __call__(self, count: int) -> float:
        call, now = self._call, self._now
        start = now()
        for _ in range(count):
            call()
        return (now() - start) * 1e-9


def repeated(timer: Timer, restore: Restore | None, seconds: float = 0.1) -> Timing:
    """Samples of `timer` for about `seconds`, each long enough for the clock; at least three.

    `restore` puts back what a launch changes, before each launch: a second one would start from something else.
    """
    # Wall time bounds the effort, whatever the clock: a kernel that waits costs no CPU time, but it costs ours.
    began = perf_counter()
    count = _calibrated(timer, restore)
    samples: list[float] = []
    while len(samples) < 3 or (perf_counter() - began < seconds and len(samples) < 50):
        samples.append(_sample(timer, restore, count))
    if not all(isfinite(sample) for sample in samples):
        raise ValueError("the clock returned a time that is no number")
    return Timing(tuple(samples), timer.clock)


def visitor(timer: Timer, restore: Restore | None) -> Callable[[], float]:
    """A visit to a candidate, hot: a burst whose first launch does not count, because another ran before it."""
    count = _calibrated(timer, restore)

    def visit() -> float:
        _sample(timer, restore, 1)
        return max(_sample(timer, restore, count), 1e-12)

    return visit


def _sample(timer: Timer, restore: Restore | None, count: int) -> float:
    """Seconds per launch over `count` launches; where arguments must be restored, each is timed by itself."""
    if restore is None:
        return timer(count) / count
    total = 0.0
    for _ in range(count):
        restore()
        total += timer(1)
    return total / count


def _calibrated(timer: Timer, restore: Restore | None) -> int:
    """How many launches make a sample long enough for the clock."""
    count = 1
    while count < MOST_AT_ONCE:
        started = perf_counter()
        _sample(timer, restore, count)
        if perf_counter() - started >= LONG_ENOUGH:
            break
        count *= 2
    return count
