"""Statistics of samples: medians and trimmed means with intervals, Student's t and the normal distribution."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

CERTAIN = 3.3
"""Standard errors of a significant difference in a race, which tests after every round: more than the usual two."""

SURE = 1.96
"""Standard errors of a 95 % interval."""

UNKNOWN = 20.0
"""A log ratio beyond anything measured: the bound where nothing can be excluded."""

RESOLUTION = 2e-4
"""The smallest error of a log ratio: clocks tick, so equal readings are not equal times."""

TRIM = 5
"""A trimmed mean drops one in this many samples at each end."""

MIN_SAMPLES = 4
"""Samples below which the error of a trimmed mean is unknown."""


def interval(samples: Sequence[float]) -> tuple[float, float]:
    """Returns a 95 % interval of the median, or the nearest that so few samples allow.

    By order statistics: no distribution is assumed, and the interval never leaves the samples.
    """
    ordered = sorted(samples)
    skipped = max(0, int((len(ordered) - 1.96 * sqrt(len(ordered))) / 2))
    return ordered[skipped], ordered[-1 - skipped]


def paired(differences: NDArray[np.float64], sure: float = CERTAIN) -> tuple[float, float, float]:
    """Returns the center of paired differences, and bounds that hold nearly simultaneously for all rounds of a race.

    By a trimmed mean, so that one sample in five may be anything, and Student's t for the few pairs of early rounds.
    With fewer than four pairs the bounds exclude nothing.
    """
    ordered = np.sort(differences)
    center = float(trimmed_mean(ordered))
    if len(ordered) < MIN_SAMPLES:
        return center, center - UNKNOWN, center + UNKNOWN
    error, freedom = trimmed_mean_error(ordered)
    reach = student_t_from_normal(freedom, sure) * max(error, RESOLUTION)
    return center, center - reach, center + reach


def trimmed_mean(ordered: NDArray[np.float64]) -> Any:
    """Returns the mean of sorted samples without the lowest and the highest fifth, along the last axis."""
    count = ordered.shape[-1]
    cut = count // TRIM
    return ordered[..., cut : count - cut].mean(axis=-1)


def trimmed_mean_error(ordered: NDArray[np.float64]) -> tuple[float, int]:
    """Returns the winsorized error of a trimmed mean and its degrees of freedom (Tukey and McLaughlin, 1963)."""
    count = len(ordered)
    cut = count // TRIM
    inner = count - 2 * cut
    winsorized = np.clip(ordered, ordered[cut], ordered[count - cut - 1])
    return float(winsorized.std(ddof=1)) * sqrt(count) / inner, inner - 1


def student_t_from_normal(freedom: int, z: float) -> float:
    """Returns the quantile of Student's t that corresponds to `z` of the normal (Cornish and Fisher, 1938).

    An approximation for races, which need it in every round; stored transcripts are checked by it.
    """
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return float(z + sum(term / freedom**power for power, term in enumerate(terms, start=1)))


@cache
def student_t_quantile(freedom: float, probability: float) -> float:
    """Returns the value that the magnitude of Student's t exceeds with this probability.

    With t = √n tan(a), the density is that of cos(a) to the power n - 1, which is integrated here.
    """
    angles = np.linspace(0.0, np.pi / 2, 20_001)
    density = np.cos(angles) ** (min(freedom, 1e4) - 1)
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    angle = float(np.interp((1 - probability) * below[-1], below, angles))
    return sqrt(min(freedom, 1e4)) * float(np.tan(angle))


def normal_pdf(z: NDArray[Any]) -> NDArray[Any]:
    """Returns the density of the standard normal distribution."""
    return np.asarray(np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi))


def normal_cdf(z: NDArray[Any]) -> NDArray[Any]:
    """Returns the standard normal distribution function (Abramowitz and Stegun 26.2.17, error below 1e-7)."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    upper = normal_pdf(z) * series
    return np.asarray(np.where(z > 0, 1 - upper, upper))
