"""Doubt: what rounds and sittings say together, with an interval that a new sitting would keep."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import exp, sqrt

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunewright.bench.run import Samples
from tunewright.measure.stats import RESOLUTION, UNKNOWN

ALARMS = 0.05
"""The chance of any false alarm among all cells that are compared."""


class Estimate(msgspec.Struct, frozen=True):
    """A log ratio: its centre, its standard error, and how many degrees of freedom that error rests on."""

    centre: float
    error: float
    freedom: float

    def reach(self, alarms: float = ALARMS) -> float:
        """How far the truth may lie from the centre, but for so small a chance."""
        if self.freedom < 1:
            return UNKNOWN
        return quantile(self.freedom, alarms) * self.error

    def bounds(self, alarms: float = ALARMS) -> tuple[float, float, float]:
        """As a ratio: the centre, and the interval."""
        reach = self.reach(alarms)
        return exp(self.centre), exp(self.centre - reach), exp(min(self.centre + reach, 700))

    def less(self, other: Estimate) -> Estimate:
        """The difference of two that know nothing of each other (Welch, 1947)."""
        mine, theirs = self.error**2, other.error**2
        freedom = (mine + theirs) ** 2 / (mine**2 / max(self.freedom, 1e-9) + theirs**2 / max(other.freedom, 1e-9))
        return Estimate(self.centre - other.centre, sqrt(mine + theirs), freedom)


def ratios(one: Samples, other: Samples) -> list[NDArray[np.float64]]:
    """Log ratios of two that ran in the same rounds, by sitting."""
    return [
        np.log(mine[: len(theirs)]) - np.log(theirs[: len(mine)])
        for mine, theirs in zip(one, other, strict=False)
        if mine and theirs
    ]


def estimate(sittings: Sequence[NDArray[np.float64]]) -> Estimate:
    """What rounds in several sittings say together.

    Within a sitting, a trimmed mean with a winsorised error. What a sitting does to all its rounds (where memory lies,
    the mood of the machine) only other sittings show: with two or more, the error is that between sittings, if it
    is the larger one.
    """
    parts = [_centre(sitting) for sitting in sittings if len(sitting)]
    if not parts:
        return Estimate(0.0, UNKNOWN, 0)
    if len(parts) == 1:
        return parts[0]
    centres = [part.centre for part in parts]
    between = float(np.std(centres, ddof=1)) / sqrt(len(parts))
    within = sqrt(sum(min(part.error, UNKNOWN) ** 2 for part in parts)) / len(parts)
    return Estimate(float(np.mean(centres)), max(between, within), len(parts) - 1)


def _centre(sitting: NDArray[np.float64]) -> Estimate:
    """The trimmed mean of one sitting's rounds (Tukey and McLaughlin, 1963)."""
    ordered = np.sort(sitting)
    count, cut = len(ordered), len(ordered) // 5
    centre = float(ordered[cut : count - cut].mean())
    if count < 4:
        return Estimate(centre, UNKNOWN if count < 2 else float(ordered.std(ddof=1)), count - 1)
    spread = float(np.clip(ordered, ordered[cut], ordered[count - cut - 1]).std(ddof=1))
    inner = count - 2 * cut
    return Estimate(centre, max(spread * sqrt(count) / inner, RESOLUTION), inner - 1)


@cache
def quantile(freedom: float, alarms: float) -> float:
    """What Student's t exceeds, on either side, with this chance.

    With t = √n tan(a) its density is that of cos(a) to the power n - 1, which is summed here.
    """
    angles = np.linspace(0.0, np.pi / 2, 20_001)
    density = np.cos(angles) ** (min(freedom, 1e4) - 1)
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    angle = float(np.interp((1 - alarms) * below[-1], below, angles))
    return sqrt(min(freedom, 1e4)) * float(np.tan(angle))
