"""Stats: centre and interval of samples."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt


def interval(samples: Sequence[float]) -> tuple[float, float]:
    """Where the median of more samples would lie, with 95 % confidence or as near as so few samples allow.

    By order statistics: no distribution is assumed, and the interval never leaves the samples.
    """
    ordered = sorted(samples)
    skipped = max(0, int((len(ordered) - 1.96 * sqrt(len(ordered))) / 2))
    return ordered[skipped], ordered[-1 - skipped]
