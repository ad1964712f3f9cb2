"""What the sum over features leaves over: a config that is faster than predicted on a shape is so on shapes like it.

The residuals of each config are interpolated between shapes by kriging: they are taken for normal, with a covariance
that falls with the distance of the logarithms of the sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunewright.shapes.table import Floats

DISTANCE, NOISE = 2.0, 0.5
"""The distance over which residuals agree, in doublings of sizes; the variance of what does not, as a ratio to that of
what does."""


class Residuals:
    """The residuals of all configs (columns) on tuned shapes (rows); NaN where nothing was tried."""

    def __init__(self, sizes: Floats, residuals: Floats) -> None:
        self._logs = np.log2(sizes)
        known = self._covariance(self._logs)
        self._weights = np.zeros_like(residuals)
        tried = np.isfinite(residuals)
        patterns, members = np.unique(tried, axis=1, return_inverse=True)
        for number, pattern in enumerate(patterns.T):
            rows, columns = np.flatnonzero(pattern), np.flatnonzero(members.ravel() == number)
            if len(rows):
                system = known[np.ix_(rows, rows)] + NOISE * np.eye(len(rows))
                solved = np.linalg.solve(system, residuals[np.ix_(rows, columns)])
                self._weights[np.ix_(rows, columns)] = solved

    def _covariance(self, logs: Floats) -> Floats:
        apart = ((logs[:, None, :] - self._logs[None, :, :]) ** 2).sum(axis=-1)
        return np.asarray(np.exp(-apart / (2 * DISTANCE**2)))

    def predict(self, sizes: Sequence[int]) -> Floats:
        """Returns the expected residual of each config on a shape."""
        here = np.log2(np.array([sizes], dtype=np.float64))
        return np.asarray((self._covariance(here) @ self._weights)[0])
