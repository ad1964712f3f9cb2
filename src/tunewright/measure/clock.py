"""Clocks: which clock is right for a kernel, cache regimes, and samplers that time a candidate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache
from math import ceil, inf, isfinite
from time import perf_counter, perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tunewright.cpu_usage import Usage, start_usage
from tunewright.ports.backend import Timer
from tunewright.ports.candidate import HasClock

CLOCKS: dict[str, Callable[[], int]] = {"thread": thread_time_ns, "cpu": process_time_ns, "wall": perf_counter_ns}

MIN_SAMPLE_SECONDS = 1e-3
"""The shortest sample that a clock measures reliably, in seconds."""

SELF_WARMING_SECONDS = 1e-2
"""A launch of this length warms the caches itself: no warm-up is needed before it."""

MAX_LAUNCHES = 1 << 20
MAX_SINGLE_LAUNCHES = 4

CORE_CACHE_BYTES, ALL_CACHES_BYTES = 4 << 20, 64 << 20
"""Bytes to stream through the caches to evict what a core has of its own; what it has of all levels."""

Restore = Callable[[], None]
"""Restores the arguments that a launch changed."""

Sampler = Callable[[], float]
"""Runs a candidate for about a millisecond and returns its seconds per launch."""


class Regime(StrEnum):
    """The state of the caches in which a kernel is timed; the fastest config depends on it."""

    HOT = "hot"  # bursts of launches; the beginning of each is discarded
    CONTEXT = "context"  # single launches with other work in between
    COLD = "cold"  # single launches, each after a cache flush


class HostTimer:
    """Times a call on the host; the first launches show which clock is right for it.

    Calls with several threads are timed by the wall clock. A call with one thread is timed by its CPU time, so that
    other programs do not count, but by the wall clock if it waits, since waiting costs no CPU time, or if it turns out
    to use more threads, since CPU time does not show what they gain. `returned` is what a single call returned.
    """

    returned: Any = None

    def __init__(self, call: Callable[[], Any], threads: int) -> None:
        self.clock = "thread" if threads == 1 else "wall"
        self._call = call
        self._probing = threads == 1
        self._total, self._launches = Usage(), 0
        self._waits_in_a_row = 0

    def __call__(self, count: int) -> float:
        if self._probing:
            return self._probe(count)
        call, now = self._call, CLOCKS[self.clock]
        self.returned = None
        if count == 1:
            start = now()
            returned = call()
            seconds = (now() - start) * 1e-9
            self.returned = returned
            return seconds
        start = now()
        for _ in range(count):
            call()
        return (now() - start) * 1e-9

    def use(self, clock: str) -> None:
        """Uses this clock from now on, so that compared candidates are timed by the same one."""
        self.clock, self._probing = clock, False

    def _probe(self, count: int) -> float:
        """Times by all clocks at once, until there is enough data to choose one.

        A launch that waits yields its processor each time and takes longer than it computes; one with hidden threads
        uses more CPU time than this thread. Either must be seen twice, since once may be chance.
        """
        self.returned = None
        usage_since = start_usage()
        for _ in range(count - 1):
            self._call()
        returned = self._call()
        usage = usage_since()
        self.returned = returned if count == 1 else None
        self._launches += count
        self._total = self._total.plus(usage)
        needs_wall = self._total.needs_wall_clock(self._launches)
        self.clock = "wall" if needs_wall else "thread"
        if self._total.wall >= MIN_SAMPLE_SECONDS:
            self._waits_in_a_row = self._waits_in_a_row + 1 if needs_wall else 0
            self._probing = self._waits_in_a_row == 1
            self._total, self._launches = Usage(), 0
        return usage.wall if needs_wall else usage.thread

    def flush(self, *, whole: bool) -> None:
        """Streams other data through the caches: enough for a core's own, or for all levels if `whole`."""
        buffer = _buffer()[: (ALL_CACHES_BYTES if whole else CORE_CACHE_BYTES) // 8]
        np.add(buffer, 1, out=buffer)


@cache
def _buffer() -> NDArray[np.int64]:
    return np.zeros(ALL_CACHES_BYTES // 8, dtype=np.int64)


class Calibration(NamedTuple):
    """How a candidate is sampled: launches in a sample, uncounted launches before them, and seconds of a launch."""

    burst: int
    warm_up: int
    each: float


def calibrate(timer: Timer, restore: Restore | None, regime: Regime = Regime.HOT) -> Calibration:
    """Finds out how many launches make a sample that a clock measures reliably."""
    count, each = _calibrate(timer, restore)
    if regime is Regime.HOT:
        # Bursts differ in length by chance; without a warm-up, the shorter ones would seem slower.
        return Calibration(count, 0 if each >= SELF_WARMING_SECONDS else max(1, count // 4), each)
    return Calibration(1 if regime is Regime.COLD else min(count, MAX_SINGLE_LAUNCHES), 0, each)


def sample_burst(timer: Timer, restore: Restore | None, count: int) -> float:
    """Returns seconds per launch over `count` launches; with `restore`, each launch is timed by itself."""
    return _retry_invalid(lambda: _sample(timer, restore, count))


def sample_separately(timer: Timer, before: Callable[[], None], count: int) -> float:
    """Returns seconds per launch over `count` launches, each timed by itself after `before`."""

    def total() -> float:
        seconds = 0.0
        for _ in range(count):
            before()
            seconds += timer(1)
        return seconds / count

    return _retry_invalid(total)


def make_sampler(timer: Timer, restore: Restore | None, regime: Regime = Regime.HOT) -> Sampler:
    """Returns a sampler for one candidate in a regime; its arguments stay the same.

    `restore` puts back what a launch changes, before each launch.
    """
    calibration = calibrate(timer, restore, regime)
    if regime is Regime.HOT:

        def burst() -> float:
            if calibration.warm_up:  # another candidate ran before
                _sample(timer, restore, calibration.warm_up)
            return sample_burst(timer, restore, calibration.burst)

        return burst

    def before() -> None:
        if restore:
            restore()
        timer.flush(whole=regime is Regime.COLD)

    return lambda: sample_separately(timer, before, calibration.burst)


def use_same_clock(timers: Sequence[HasClock]) -> str:
    """Makes all timers use the most inclusive clock that any of them needs, and returns its name."""
    names = [timer.clock for timer in timers]
    clock = max(names, key=lambda name: list(CLOCKS).index(name) if name in CLOCKS else -1)
    use_clock([timer for timer in timers if timer.clock != clock], clock)
    return clock


def use_clock(timers: Sequence[HasClock], clock: str) -> None:
    """Makes those that time the host use this clock."""
    for timer in timers:
        if isinstance(timer, HostTimer):
            timer.use(clock)


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Returns the time of one candidate over several cases."""
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)


def _retry_invalid(sample: Sampler) -> float:
    """Samples again if the clock returned an impossible time."""
    for _ in range(3):
        if isfinite(seconds := sample()) and seconds >= 0:
            return max(seconds, 1e-12)
    raise ValueError("the clock returned an invalid time three times in a row")


def _sample(timer: Timer, restore: Restore | None, count: int) -> float:
    """Returns seconds per launch over `count` launches; with `restore`, each launch is timed by itself."""
    if restore is None:
        return timer(count) / count
    total = 0.0
    for _ in range(count):
        restore()
        total += timer(1)
    return total / count


def _calibrate(timer: Timer, restore: Restore | None) -> tuple[int, float]:
    """Returns how many launches make a sample long enough for the clock, and about how long each takes."""
    count, each, each_with_restore, confirmed = 1, inf, inf, False
    while True:
        began = perf_counter()
        measured = _sample(timer, restore, count) * count
        spent = perf_counter() - began
        each = min(each, measured / count) if isfinite(measured) and measured > 0 else each
        each_with_restore = min(each_with_restore, spent / count)
        # A kernel that waits costs no CPU time, but it costs ours.
        if max(measured if isfinite(measured) else 0.0, spent) < MIN_SAMPLE_SECONDS / 8 and count < MAX_LAUNCHES:
            count *= 4
        elif confirmed or spent >= MIN_SAMPLE_SECONDS:
            each = each if isfinite(each) else each_with_restore
            launches = min(max(1, ceil(MIN_SAMPLE_SECONDS / each)), MAX_LAUNCHES)
            if restore:
                launches = min(launches, max(1, int(SELF_WARMING_SECONDS / each_with_restore)))
            return launches, each
        else:
            confirmed = True  # it may have been a hiccup: measure once more
