"""Bursts: a launch timed a few times in a row by the device's own events, caches flushed before each."""

from __future__ import annotations

from math import ceil, isfinite
from typing import Any, Protocol

from tunewright.backends.triton import adapter
from tunewright.model.trial import median

LONG_ENOUGH = 2e-3
"""Seconds of launches that a burst aims at."""

LONG = 1e-2
"""Seconds after which one launch is enough."""

FEWEST, MOST = 3, 50
"""Launches in a burst of shorter ones."""


class Launchable(Protocol):
    """A launch with what goes before and after it, which is not timed."""

    def before(self) -> None: ...
    def run(self) -> None: ...
    def after(self) -> None: ...


class Burst:
    """Visits to a candidate: each is a burst of launches, and returns the median of their seconds.

    As Triton's own benchmark times launches; but few at a time, so that candidates can take turns.
    """

    clock = adapter.Clock.name

    def __init__(self, candidate: Launchable) -> None:
        self._candidate, self._clock = candidate, adapter.Clock()
        self._events: list[tuple[Any, Any]] = []
        self._grow(1)
        each = self()
        self._grow(1 if each >= LONG else min(MOST, max(FEWEST, ceil(LONG_ENOUGH / each))))

    def _grow(self, count: int) -> None:
        while len(self._events) < count:
            self._events.append((self._clock.event(), self._clock.event()))

    def __call__(self) -> float:
        one, clock = self._candidate, self._clock
        for start, end in self._events:
            one.before()
            clock.flush()
            start.record()
            one.run()
            end.record()
            one.after()
        clock.wait()
        seconds = median([start.elapsed_time(end) for start, end in self._events]) * 1e-3
        if not isfinite(seconds) or seconds < 0:
            raise ValueError(f"the device's events say {seconds} s, which is no time")
        return max(seconds, 1e-12)
