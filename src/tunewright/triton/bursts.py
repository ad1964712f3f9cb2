"""Times a launch a few times in a row by device events, with caches flushed before each."""

from __future__ import annotations

from math import ceil, isfinite
from typing import Any, Protocol

from tunewright.model.trial import median
from tunewright.triton import adapter

TARGET_SECONDS = 2e-3
"""Seconds of launches that a burst aims for."""

SHORT_SECONDS = 1e-4
"""Seconds of a launch below which the device pauses before it, so that the host's work is not timed."""

SINGLE_LAUNCH_SECONDS = 1e-2
"""Seconds of a launch from which on a burst has only one."""

MIN_LAUNCHES, MAX_LAUNCHES = 3, 50
"""Bounds of the launches in a burst of shorter ones."""


class Launchable(Protocol):
    """A launch with hooks before and after it, which are not timed."""

    def before(self) -> None: ...
    def run(self) -> None: ...
    def after(self) -> None: ...


class Burst:
    """Samples a candidate: a call makes a burst of launches and returns the median of their seconds.

    It times launches as Triton's own benchmark does, but few at a time, so that candidates take turns. A device that
    idles reaches the start at once, and waits for the host to launch: before short launches it pauses meanwhile.
    """

    clock = adapter.EventClock.name

    def __init__(self, device: adapter.EventClock) -> None:
        self._device = device
        self._events: list[tuple[Any, Any]] = []
        self._is_short = True

    @property
    def launches(self) -> int:
        """Launches in a burst; 0 before it is calibrated."""
        return len(self._events)

    def calibrate(self, launch: Launchable) -> None:
        """Finds out how many launches make a burst."""
        self._grow(1)
        seconds = self(launch)
        self._is_short = seconds < SHORT_SECONDS
        if seconds < SINGLE_LAUNCH_SECONDS:
            self._grow(min(MAX_LAUNCHES, max(MIN_LAUNCHES, ceil(TARGET_SECONDS / seconds))))

    def _grow(self, count: int) -> None:
        while len(self._events) < count:
            self._events.append((self._device.event(), self._device.event()))

    def __call__(self, launch: Launchable) -> float:
        for start, end in self._events:
            launch.before()
            self._device.flush()
            if self._is_short:
                self._device.pause()
            start.record()
            launch.run()
            end.record()
            launch.after()
        self._device.wait()
        seconds = median([start.elapsed_time(end) for start, end in self._events]) * 1e-3
        if not isfinite(seconds) or seconds < 0:
            raise ValueError(f"the device's events measured {seconds} s, which is not a valid time")
        return max(seconds, 1e-12)
