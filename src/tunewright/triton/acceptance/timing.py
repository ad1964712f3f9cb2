"""How stages time launches: bursts between events of the device, as tuning does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tunewright.model.trial import median
from tunewright.triton import adapter
from tunewright.triton.bursts import Burst


class PlainLaunch:
    """A launch without hooks."""

    def __init__(self, launch: Callable[[], Any]) -> None:
        self.run = launch

    def before(self) -> None:
        """Does nothing."""

    def after(self) -> None:
        """Does nothing."""


def sampler(clock: adapter.EventClock, launch: Callable[[], Any]) -> Callable[[], float]:
    """Returns what takes one sample of a launch: the median of a burst."""
    plain = PlainLaunch(launch)
    plain.run()
    burst = Burst(clock)
    burst.calibrate(plain)
    return lambda: burst(plain)


def interleaved(samplers: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """Returns the samples of each, taken in turn, forwards and backwards."""
    samples: list[list[float]] = [[] for _ in samplers]
    numbers = list(range(len(samplers)))
    for turn in range(rounds):
        for number in numbers if turn % 2 else reversed(numbers):
            samples[number].append(samplers[number]())
    return samples


def medians(samples: Sequence[Sequence[float]]) -> list[float]:
    """Returns the median of each."""
    return [median(list(each)) for each in samples]
