"""Stats: centre and interval of samples."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

CERTAIN = 3.3
"""Standard errors beyond which a difference is believed; a race looks often, so it must be more than two."""

SURE = 1.96
"""Standard errors of a single statement that holds 19 times in 20."""

UNKNOWN = 20.0
"""A log ratio beyond anything measured: the bound where nothing can be excluded."""

RESOLUTION = 2e-4
"""The least error of a log ratio: clocks tick, and equal readings are not equal times."""


def interval(samples: Sequence[float]) -> tuple[float, float]:
    """Where the median of more samples would lie, with 95 % confidence or as near as so few samples allow.

    By order statistics: no distribution is assumed, and the interval never leaves the samples.
    """
    ordered = sorted(samples)
    skipped = max(0, int((len(ordered) - 1.96 * sqrt(len(ordered))) / 2))
    return ordered[skipped], ordered[-1 - skipped]


def paired(differences: NDArray[np.float64], sure: float = CERTAIN) -> tuple[float, float, float]:
    """The centre of paired differences, and bounds that hold at every look of a race at once, nearly.

    A trimmed mean with a winsorised error (Tukey and McLaughlin, 1963), so that one sample in five may be anything;
    Student's t for the few pairs of early rounds. With fewer than four pairs nothing is excluded.
    """
    ordered = np.sort(differences)
    count, cut = len(ordered), len(ordered) // 5
    centre = float(ordered[cut : count - cut].mean())
    if count < 4:
        return centre, centre - UNKNOWN, centre + UNKNOWN
    winsorised = np.clip(ordered, ordered[cut], ordered[count - cut - 1])
    inner = count - 2 * cut
    error = float(winsorised.std(ddof=1)) * sqrt(count) / inner
    reach = _student(inner - 1, sure) * max(error, RESOLUTION)
    return centre, centre - reach, centre + reach


def _student(freedom: int, z: float) -> float:
    """The quantile of Student's t that `z` standard errors are of the normal (Cornish and Fisher, 1938)."""
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return float(z + sum(term / freedom**power for power, term in enumerate(terms, start=1)))
