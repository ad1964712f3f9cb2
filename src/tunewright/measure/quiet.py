"""Quiet: is this machine quiet enough for that claim? What went on beside a measurement, and what noise hides."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Literal, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tunewright.measure.clock import HostTimer, visitor
from tunewright.measure.race import FIRST_TEST, Race, Terms, run
from tunewright.model.conditions import Conditions

SHORTEST = 0.1
"""Seconds below which counters that tick every hundredth say nothing."""

STEP = 1.1
"""How many times longer than at the best pace a round takes if the processor was throttled, not the round unlucky."""

_STAT = Path("/proc/stat")


class Watch:
    """Reads the system's counters when it is made and when it stops; nothing of it runs in between."""

    def __init__(self) -> None:
        self._before = _read()

    def stop(self, pace: Sequence[float] = ()) -> Conditions:
        """What went on since; `pace` is how long the same work took, round by round."""
        before, after = self._before, _read()
        passed = _Counters(*(late - early for early, late in zip(before, after, strict=True)))
        drift, throttled = _steadiness(pace)
        seen = {"seconds": passed.seconds, "drift": drift, "throttled": throttled}
        if passed.seconds >= SHORTEST:
            total = passed.total or float("inf")
            used = passed.total - passed.idle - passed.stolen - passed.own * os.sysconf("SC_CLK_TCK")
            seen["load"] = max(0.0, (before.others + after.others) / 2)
            seen["steal"] = max(0.0, passed.stolen / total)  # some hypervisors correct it downwards
            seen["busy"] = min(1.0, max(0.0, used / total))
            seen["switches"] = passed.switches / passed.seconds
        return Conditions(**{name: round(value, 4) for name, value in seen.items()})


class _Counters(NamedTuple):
    """What the system has counted so far; seconds, but `total`, `idle` and `stolen` in its ticks."""

    seconds: float
    own: float
    switches: float
    total: float = 0.0
    idle: float = 0.0
    stolen: float = 0.0
    others: float = 0.0  # a gauge: how many run now beside us, per processor


def _read() -> _Counters:
    # In a container this is the whole machine around it: others may be seen that our share never meets, and of its
    # limit on CPU time nothing is seen at all but the pace. What runs in our own children counts as others.
    usage = getrusage(RUSAGE_SELF)
    own = time.perf_counter(), usage.ru_utime + usage.ru_stime, float(usage.ru_nivcsw)
    try:
        text = _STAT.read_bytes()
        ticks = [int(tick) for tick in text.partition(b"\n")[0].split()[1:9]]
        running = int(text.partition(b"\nprocs_running ")[2].split()[0])
        return _Counters(*own, sum(ticks), ticks[3] + ticks[4], ticks[7], (running - 1) / text.count(b"\ncpu"))
    except (OSError, ValueError, IndexError, ZeroDivisionError):
        return _Counters(*own)


def _steadiness(pace: Sequence[float]) -> tuple[float, float]:
    """Drift and the share of throttled rounds."""
    if len(pace) < FIRST_TEST or min(pace) <= 0:
        return 0.0, 0.0
    # The middle of three neighbours: a round that met another program stands alone, a slower processor stays slow.
    steady = np.median(sliding_window_view(np.asarray(pace, np.float64), 3), axis=1)
    third = len(steady) // 3
    drift = np.median(steady[-third:]) / np.median(steady[:third]) - 1
    best = np.quantile(steady, 0.1)  # a pace that a tenth of the rounds kept: a minimum is luck
    return float(drift), float(np.mean(steady > STEP * best))


def floor(seconds: float = 1.0, clock: Literal["cpu", "wall"] = "cpu") -> Race:
    """The noise floor by `clock`: a race of a small piece of work against itself; if only one is left, noise won.

    The work stays in cache and is timed for about a millisecond; what waits for memory or for threads is noisier.
    """
    numbers = np.ones(2048)
    timer = HostTimer(partial(np.sqrt, numbers, out=numbers), threads=1 if clock == "cpu" else 2)
    visit = visitor(timer, None)  # one for both: the same work elsewhere in memory may truly differ
    return run([visit, visit], Terms(margin=0.0, rounds=1_000_000, seconds=seconds))
