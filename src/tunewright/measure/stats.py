"""Stats: centre and interval of samples."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import median, quantiles


def interval(samples: Sequence[float]) -> tuple[float, float]:
    """Where the median of more samples would lie, roughly: the notch of a box plot (McGill et al., 1978)."""
    centre = median(samples)
    if len(samples) < 3:
        return min(samples), max(samples)
    low, _, high = quantiles(samples, n=4)
    reach = 1.57 * (high - low) / sqrt(len(samples))
    return centre - reach, centre + reach
