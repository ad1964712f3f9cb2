"""Noise of the machine: conditions during a measurement, and the smallest difference that can be detected."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tunewright.measure.clock import HostTimer, make_sampler
from tunewright.measure.race import FIRST_TEST, Race, RaceOptions, run_race
from tunewright.model.conditions import Conditions

MIN_WATCH_SECONDS = 0.1
"""The shortest period for which the system's counters, which tick every hundredth of a second, are meaningful."""

THROTTLED_RATIO = 1.1
"""A round this many times slower than the best pace counts as throttled."""

_STAT = Path("/proc/stat")


class ConditionsMonitor:
    """Reads the system's counters when it is created and when it stops; nothing runs in between."""

    def __init__(self) -> None:
        self._before = _read()

    def stop(self, pace: Sequence[float] = ()) -> Conditions:
        """Returns the conditions since the start; `pace` has the time of the same work in each round."""
        before, after = self._before, _read()
        delta = _Counters(*(late - early for early, late in zip(before, after, strict=True)))
        drift, throttled = _steadiness(pace)
        values: dict[str, Any] = {"seconds": delta.seconds, "drift": drift, "throttled": throttled}
        if delta.seconds >= MIN_WATCH_SECONDS:
            total = delta.total or float("inf")
            used = delta.total - delta.idle - delta.stolen - delta.own * os.sysconf("SC_CLK_TCK")
            values["load"] = max(0.0, (before.others + after.others) / 2)
            values["steal"] = max(0.0, delta.stolen / total)  # some hypervisors correct it downwards
            values["busy"] = min(1.0, max(0.0, used / total))
            values["switches"] = delta.switches / delta.seconds
        return Conditions(**{name: round(value, 4) for name, value in values.items()})


class _Counters(NamedTuple):
    """Readings of the system's counters, in seconds; `total`, `idle` and `stolen` in ticks."""

    seconds: float
    own: float
    switches: float
    total: float = 0.0
    idle: float = 0.0
    stolen: float = 0.0
    others: float = 0.0  # a gauge: how many run now beside us, per processor


def _read() -> _Counters:
    # In a container these are the counters of the whole machine: they include programs that do not affect us, and not
    # the container's CPU limit, which shows only in the pace. Child processes count as other programs.
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
    """Returns the drift and the share of throttled rounds."""
    if len(pace) < FIRST_TEST or min(pace) <= 0:
        return 0.0, 0.0
    # The median of three neighbors: a disturbed round is alone, a throttled processor stays slow.
    smooth = np.median(sliding_window_view(np.asarray(pace, np.float64), 3), axis=1)
    third = len(smooth) // 3
    drift = np.median(smooth[-third:]) / np.median(smooth[:third]) - 1
    best = np.quantile(smooth, 0.1)  # the minimum would be luck
    return float(drift), float(np.mean(smooth > THROTTLED_RATIO * best))


def noise_floor(seconds: float = 1.0, clock: Literal["cpu", "wall"] = "cpu") -> Race:
    """Races a small piece of work against itself by `clock`; if one side is eliminated, the noise is not random.

    The work stays in cache and takes about a millisecond; work that waits for memory or threads is noisier.
    """
    numbers = np.ones(2048)
    timer = HostTimer(partial(np.sqrt, numbers, out=numbers), threads=1 if clock == "cpu" else 2)
    sample = make_sampler(timer, None)  # one for both: the same work elsewhere in memory may really differ
    return run_race([sample, sample], RaceOptions(margin=0.0, rounds=1_000_000, seconds=seconds))
