"""Times of calls, interleaved so that other load on the machine affects all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import Any

ROUNDS = 15
MAX_SECONDS = 0.3
"""Seconds that all rounds of one candidate may take."""


def time_calls(launches: Mapping[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, float]:
    """Returns the median time of a call of each, in interleaved rounds."""
    repeats = {}
    for name, launch in launches.items():
        launch()
        once = min(_seconds(launch, 1) for _ in range(3))
        repeats[name] = min(200, max(1, int(MAX_SECONDS / rounds / once)))
    samples: dict[str, list[float]] = {name: [] for name in launches}
    for _ in range(rounds):
        for name, launch in launches.items():
            samples[name].append(_seconds(launch, repeats[name]))
    return {name: median(times) for name, times in samples.items()}


def _seconds(launch: Callable[[], Any], count: int) -> float:
    """Returns the seconds of one call, of `count` in a row."""
    began = perf_counter()
    for _ in range(count):
        launch()
    return max((perf_counter() - began) / count, 1e-9)
