"""Means of what is known of shapes, by how near these are: some shapes are harder to predict than others."""

from __future__ import annotations

import numpy as np

from tunewright.shapes.table import Floats

DISTANCE = 1.5
"""The distance over which values agree, in doublings of sizes."""

PRIOR = 4.0
"""For how many values the mean of all counts."""


class LocalMean:
    """The weighted mean of values near a shape, of which the mean of all is expected."""

    def __init__(self, sizes: Floats, values: Floats, weights: Floats, expected: float | None = None) -> None:
        """Takes what is expected of the mean of all, as much as of `PRIOR` values; without it, nothing is."""
        self._sizes, self._values, self._weights = sizes, values, weights
        self.overall = float(values.mean())
        if expected is not None:
            self.overall = (PRIOR * expected + float(values.sum())) / (PRIOR + len(values))

    def at(self, sizes: Floats) -> float:
        """Returns the mean near a shape."""
        apart = np.log2(self._sizes / sizes)
        weights = self._weights * np.exp(-(apart**2).sum(axis=1) / (2 * DISTANCE**2))
        return float((PRIOR * self.overall + weights @ self._values) / (PRIOR + weights.sum()))
