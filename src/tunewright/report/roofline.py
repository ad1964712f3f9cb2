"""Roofline model: the peak and bandwidth that a machine reaches, and the least time that work takes under them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tunewright.measure.clock import HostTimer, make_sampler

MEMORY, ARITHMETIC = "memory", "arithmetic"
SAMPLES = 12

Transfers = Callable[[int], Iterable[Callable[[], Any]]]
"""Returns calls that each touch a working set of so many bytes once."""


@dataclass(frozen=True)
class Roofline:
    """Limits of one machine: operations a second, and bytes a second by working set, smallest set first."""

    peak: float
    bandwidth: tuple[tuple[int, float], ...]

    def bandwidth_for(self, nbytes: int) -> float:
        """Returns the bandwidth of the smallest measured working set that holds `nbytes`, else of the largest."""
        return next((rate for size, rate in self.bandwidth if nbytes <= size), self.bandwidth[-1][1])

    def least_seconds(self, nbytes: int, flops: float) -> tuple[float, str]:
        """Returns the least time for moving `nbytes` and doing `flops` operations, and which of the two limits it."""
        memory = nbytes / self.bandwidth_for(nbytes)
        arithmetic = flops / self.peak if flops else 0.0
        return (memory, MEMORY) if memory >= arithmetic else (arithmetic, ARITHMETIC)

    def best_of(self, other: Roofline) -> Roofline:
        """Returns the higher of each limit; both must be measured at the same working sets."""
        pairs = zip(self.bandwidth, other.bandwidth, strict=True)
        return Roofline(max(self.peak, other.peak), tuple((size, max(one, two)) for (size, one), (_, two) in pairs))


def measure_peak(matmul: Callable[[], Any], side: int, threads: int, samples: int = SAMPLES) -> float:
    """Returns operations a second of `matmul`, a product of two square matrices with `side` rows."""
    return 2 * side**3 / shortest_seconds(matmul, threads, samples)


def numpy_transfers(nbytes: int) -> Iterable[Callable[[], Any]]:
    """Returns a copy and a dot product of two numpy arrays that have `nbytes` together."""
    left, right = np.ones(nbytes // 16), np.ones(nbytes // 16)
    return partial(np.copyto, left, right), partial(np.dot, left, right)


def measure_bandwidth(
    working_sets: Sequence[int], threads: int, transfers: Transfers = numpy_transfers, samples: int = SAMPLES
) -> tuple[tuple[int, float], ...]:
    """Returns each working set with the bytes a second of the fastest of its transfers."""
    return tuple(
        (size, size / min(shortest_seconds(call, threads, samples) for call in transfers(size)))
        for size in working_sets
    )


def shortest_seconds(call: Callable[[], Any], threads: int, samples: int = SAMPLES) -> float:
    """Returns the shortest sampled time of a call: what the machine can do when nothing else slows it."""
    sample = make_sampler(HostTimer(call, threads), None)
    return min(sample() for _ in range(samples))
