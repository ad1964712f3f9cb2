"""Stats: centre and interval of samples."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np


def interval(samples: Sequence[float]) -> tuple[float, float]:
    """Where the median of more samples would lie, roughly: the notch of a box plot (McGill et al., 1978)."""
    if len(samples) < 3:
        return min(samples), max(samples)
    low, centre, high = (float(q) for q in np.quantile(samples, (0.25, 0.5, 0.75)))
    reach = 1.57 * (high - low) / sqrt(len(samples))
    return centre - reach, centre + reach
