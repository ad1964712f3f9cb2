"""Pace: how long calls take, in turns, so that what the machine does meanwhile befalls all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import Any

ROUNDS = 15
LONGEST = 0.3
"""Seconds that all rounds of one candidate may take."""


def paces(launches: Mapping[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, float]:
    """The median time of a call of each, in interleaved rounds."""
    repeats = {}
    for name, launch in launches.items():
        launch()
        once = min(_timed(launch, 1) for _ in range(3))
        repeats[name] = min(200, max(1, int(LONGEST / rounds / once)))
    taken: dict[str, list[float]] = {name: [] for name in launches}
    for _ in range(rounds):
        for name, launch in launches.items():
            taken[name].append(_timed(launch, repeats[name]))
    return {name: median(times) for name, times in taken.items()}


def _timed(launch: Callable[[], Any], count: int) -> float:
    """Seconds of one call, of several in a row."""
    began = perf_counter()
    for _ in range(count):
        launch()
    return max((perf_counter() - began) / count, 1e-9)
