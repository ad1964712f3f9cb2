"""Clock: which clock is honest for this kernel; regimes; visits to a candidate by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache
from math import ceil, inf, isfinite
from resource import RUSAGE_THREAD, getrusage
from time import perf_counter, perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.ports.backend import Timer

CLOCKS: dict[str, Callable[[], int]] = {"thread": thread_time_ns, "cpu": process_time_ns, "wall": perf_counter_ns}

LONG_ENOUGH = 1e-3
"""Seconds a sample must last for its clock to be trusted."""

LONG = 1e-2
"""Seconds after which a launch has warmed the caches itself: nothing before it needs to be discarded."""

MOST_AT_ONCE = 1 << 20
MOST_SINGLES = 4
SLACK = 5e-5
"""Seconds by which clocks may differ for no reason."""

NEARBY, EVERYTHING = 4 << 20, 64 << 20
"""Bytes that other work passes through the caches: more than a core has of its own; more than its share of them all."""

Restore = Callable[[], None]
"""Puts back what a launch changed."""

Visit = Callable[[], float]
"""Runs a candidate for a moment, and returns its seconds per launch."""


class Regime(StrEnum):
    """In what state of the caches a kernel is timed; the fastest config differs between them."""

    HOT = "hot"  # again and again: bursts, the beginning of each discarded
    CONTEXT = "context"  # single launches, other work in between
    COLD = "cold"  # single launches, caches flushed before each


class HostTimer:
    """Times a call on the host, by the clock that is honest for it; its first launches show which that is.

    Several threads are timed by the wall. One is timed by its own CPU time, so that neighbours do not count; by that
    of the whole process if the call turns out to use threads in hiding; and by the wall if it waits, since waiting
    costs no CPU time at all.
    """

    def __init__(self, call: Callable[[], Any], threads: int) -> None:
        self.clock = "thread" if threads == 1 else "wall"
        self._call = call
        self._probing = threads == 1
        self._seen: dict[str, float] = {}
        self._launches = self._given_up = self._waited = 0

    def __call__(self, count: int) -> float:
        if self._probing:
            return self._probed(count)
        call, now = self._call, CLOCKS[self.clock]
        start = now()
        for _ in range(count):
            call()
        return (now() - start) * 1e-9

    def use(self, clock: str) -> None:
        """Read this clock from now on: those who are compared must be timed alike."""
        self.clock, self._probing = clock, False

    def _probed(self, count: int) -> float:
        """The same by all clocks at once, until there is enough to choose one.

        A launch that waits gives up its processor each time, and takes longer than it computes; that it does must be
        seen twice, since once may be chance.
        """
        before = getrusage(RUSAGE_THREAD).ru_nvcsw
        start = {name: now() for name, now in CLOCKS.items()}
        for _ in range(count):
            self._call()
        took = {name: (now() - start[name]) * 1e-9 for name, now in CLOCKS.items()}
        self._seen = {name: self._seen.get(name, 0.0) + seconds for name, seconds in took.items()}
        self._launches += count
        self._given_up += getrusage(RUSAGE_THREAD).ru_nvcsw - before
        seen, often = self._seen, self._given_up >= max(1, self._launches // 2)
        waits = often and seen["wall"] > 1.1 * seen["cpu"] + SLACK
        hidden = seen["cpu"] > 1.1 * seen["thread"] + SLACK
        self.clock = "wall" if waits else "cpu" if hidden else "thread"
        if seen["wall"] >= LONG_ENOUGH:
            self._waited = self._waited + 1 if waits else 0
            self._probing = self._waited == 1
            self._seen, self._launches, self._given_up = {}, 0, 0
        return took[self.clock]

    def flush(self, *, whole: bool) -> None:
        """Let other work pass through the caches: as much as a core has of its own, or all there is."""
        buffer = _buffer()[: (EVERYTHING if whole else NEARBY) // 8]
        np.add(buffer, 1, out=buffer)


@cache
def _buffer() -> NDArray[np.int64]:
    return np.zeros(EVERYTHING // 8, dtype=np.int64)


def visitor(timer: Timer, restore: Restore | None, regime: Regime = Regime.HOT) -> Visit:
    """Visits to one candidate in a regime; each lasts a moment, and gives seconds per launch.

    `restore` puts back what a launch changes, before each launch: a second one would start from something else.
    """
    count, each = _calibrated(timer, restore)
    if regime is Regime.HOT:
        # Bursts of one kernel differ in length by chance; what warms up must not count more in the shorter ones.
        skipped = 0 if each >= LONG else max(1, count // 4)

        def burst() -> float:
            if skipped:  # another candidate ran before it
                _sample(timer, restore, skipped)
            return _sample(timer, restore, count)

        return _believed(burst)

    singles = 1 if regime is Regime.COLD else min(count, MOST_SINGLES)

    def apart() -> float:
        total = 0.0
        for _ in range(singles):
            if restore:
                restore()
            timer.flush(whole=regime is Regime.COLD)
            total += timer(1)
        return total / singles

    return _believed(apart)


def alike(timers: Sequence[Timer]) -> str:
    """Have all timers read the same clock, the most charging that any of them needs; its name."""
    names = [timer.clock for timer in timers]
    worst = max(names, key=lambda name: list(CLOCKS).index(name) if name in CLOCKS else -1)
    for timer in timers:
        if timer.clock != worst and isinstance(timer, HostTimer):
            timer.use(worst)
    return worst


def together(visits: Sequence[Visit], weights: Sequence[float]) -> Visit:
    """A visit to the same candidate in several cases: the mean of their times, weighted."""
    if len(visits) == 1:
        return visits[0]
    total = sum(weights)
    return lambda: sum(weight * visit() for weight, visit in zip(weights, visits, strict=True)) / total


def _believed(visit: Visit) -> Visit:
    """The visit, repeated where the clock gave what cannot be a time."""

    def again() -> float:
        for _ in range(3):
            if isfinite(seconds := visit()) and seconds >= 0:
                return max(seconds, 1e-12)
        raise ValueError("the clock returned a time that is no number")

    return again


def _sample(timer: Timer, restore: Restore | None, count: int) -> float:
    """Seconds per launch over `count` launches; where arguments must be restored, each is timed by itself."""
    if restore is None:
        return timer(count) / count
    total = 0.0
    for _ in range(count):
        restore()
        total += timer(1)
    return total / count


def _calibrated(timer: Timer, restore: Restore | None) -> tuple[int, float]:
    """How many launches make a sample long enough for the clock, and about how long each takes."""
    count, each, whole, sure = 1, inf, inf, False
    while True:
        began = perf_counter()
        read = _sample(timer, restore, count) * count
        spent = perf_counter() - began
        each = min(each, read / count) if isfinite(read) and read > 0 else each
        whole = min(
            whole, spent / count
        )  # with what is put back in between, which takes its time though none counts it
        # A kernel that waits costs no CPU time, but it costs ours.
        if max(read if isfinite(read) else 0.0, spent) < LONG_ENOUGH / 8 and count < MOST_AT_ONCE:
            count *= 4
        elif sure or spent >= LONG_ENOUGH:
            each = each if isfinite(each) else whole
            wanted = min(max(1, ceil(LONG_ENOUGH / each)), MOST_AT_ONCE)
            return min(wanted, max(1, int(LONG / whole))) if restore else wanted, each
        else:
            sure = True  # it may have been a hiccup: once more
