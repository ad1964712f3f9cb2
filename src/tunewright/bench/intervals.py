"""Intervals of log ratios from rounds and repeats, wide enough to hold for another repeat."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, sqrt

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunewright.bench.results import Samples
from tunewright.stats import (
    MIN_SAMPLES,
    RESOLUTION,
    UNKNOWN,
    student_t_quantile,
    trimmed_mean,
    trimmed_mean_error,
)

ALARMS = 0.05
"""The chance of any false alarm among all cells that are compared."""


class Estimate(msgspec.Struct, frozen=True):
    """A log ratio: its center, its standard error, and the degrees of freedom of that error."""

    center: float
    error: float
    freedom: float

    def half_width(self, alarms: float = ALARMS) -> float:
        """Half the width of the interval that misses the true value with the chance `alarms`."""
        if self.freedom < 1:
            return UNKNOWN
        return student_t_quantile(self.freedom, alarms) * self.error

    def bounds(self, alarms: float = ALARMS) -> tuple[float, float, float]:
        """Returns the center and the interval as ratios."""
        half_width = self.half_width(alarms)
        return exp(self.center), exp(self.center - half_width), exp(min(self.center + half_width, 700))

    def minus(self, other: Estimate) -> Estimate:
        """Returns the difference of two independent estimates (Welch, 1947)."""
        mine, theirs = self.error**2, other.error**2
        freedom = (mine + theirs) ** 2 / (mine**2 / max(self.freedom, 1e-9) + theirs**2 / max(other.freedom, 1e-9))
        return Estimate(self.center - other.center, sqrt(mine + theirs), freedom)


def log_ratios(numerator: Samples, denominator: Samples) -> list[NDArray[np.float64]]:
    """Returns log ratios of samples from the same rounds, by repeat."""
    return [
        np.log(top[: len(bottom)]) - np.log(bottom[: len(top)])
        for top, bottom in zip(numerator, denominator, strict=False)
        if top and bottom
    ]


def estimate(repeats: Sequence[NDArray[np.float64]]) -> Estimate:
    """Combines the rounds of several repeats.

    Within a repeat, a trimmed mean with a winsorized error. What affects all rounds of a repeat (where memory lies, the
    state of the machine) only other repeats show: with two or more, the error is that between repeats, if it is larger.
    """
    parts = [_estimate_repeat(repeat) for repeat in repeats if len(repeat)]
    if not parts:
        return Estimate(0.0, UNKNOWN, 0)
    if len(parts) == 1:
        return parts[0]
    centers = [part.center for part in parts]
    between = float(np.std(centers, ddof=1)) / sqrt(len(parts))
    within = sqrt(sum(min(part.error, UNKNOWN) ** 2 for part in parts)) / len(parts)
    return Estimate(float(np.mean(centers)), max(between, within), len(parts) - 1)


def _estimate_repeat(repeat: NDArray[np.float64]) -> Estimate:
    """Returns the trimmed mean of one repeat's rounds (Tukey and McLaughlin, 1963)."""
    ordered = np.sort(repeat)
    count, mean = len(ordered), float(trimmed_mean(ordered))
    if count < MIN_SAMPLES:
        return Estimate(mean, UNKNOWN if count < 2 else float(ordered.std(ddof=1)), count - 1)
    error, freedom = trimmed_mean_error(ordered)
    return Estimate(mean, max(error, RESOLUTION), freedom)
