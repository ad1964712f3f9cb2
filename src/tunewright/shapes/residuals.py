"""What the sum over features leaves over: a config that is faster than predicted on a shape is so on shapes like it.

The residuals of each config are interpolated between shapes by kriging: they are taken for normal, with a covariance
that falls with the distance of the logarithms of the sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tunewright.shapes.table import Floats

REACHES, NOISES = (1.0, 2.0, 4.0, 8.0), (0.1, 0.5, 2.0)
"""Distances over which residuals agree, in doublings of sizes; variances of what does not, as ratios to that which
does."""


@dataclass(frozen=True)
class Reach:
    """How far residuals reach, and how noisy they are."""

    distance: float
    noise: float


CANDIDATES = tuple(Reach(distance, noise) for distance, noise in product(REACHES, NOISES))


class Residuals:
    """The residuals of all configs (columns) on tuned shapes (rows); NaN where nothing was tried."""

    def __init__(self, sizes: Floats, residuals: Floats, reach: Reach) -> None:
        self._logs, self._reach = np.log2(sizes), reach
        known = self._covariance(self._logs)
        self._weights = np.zeros_like(residuals)
        tried = np.isfinite(residuals)
        patterns, members = np.unique(tried, axis=1, return_inverse=True)
        for number, pattern in enumerate(patterns.T):
            rows, columns = np.flatnonzero(pattern), np.flatnonzero(members.ravel() == number)
            if len(rows):
                system = known[np.ix_(rows, rows)] + reach.noise * np.eye(len(rows))
                solved = np.linalg.solve(system, residuals[np.ix_(rows, columns)])
                self._weights[np.ix_(rows, columns)] = solved

    def _covariance(self, logs: Floats) -> Floats:
        apart = ((logs[:, None, :] - self._logs[None, :, :]) ** 2).sum(axis=-1)
        return np.asarray(np.exp(-apart / (2 * self._reach.distance**2)))

    def predict(self, sizes: Sequence[int]) -> Floats:
        """Returns the expected residual of each config on a shape."""
        here = np.log2(np.array([sizes], dtype=np.float64))
        return np.asarray((self._covariance(here) @ self._weights)[0])


def choose_reach(
    sizes: Floats, folds: Sequence[tuple[Sequence[int], Floats]], error: float
) -> tuple[Reach | None, float]:
    """Returns the reach that predicts shapes left out best, and the error that remains; None if none helps.

    A fold is the shapes that are left out, and the residuals of all shapes without what is known of these.
    """
    best: tuple[Reach | None, float] = None, error
    for reach in CANDIDATES:
        errors = []
        for left, residuals in folds:
            kept = [i for i in range(len(sizes)) if i not in left]
            model = Residuals(sizes[kept], residuals[kept], reach)
            for shape in left:
                rest = residuals[shape] - model.predict(sizes[shape].tolist())
                rest = rest[np.isfinite(rest)]
                errors.append(float(((rest - rest.mean()) ** 2).mean()))
        if errors and (found := float(np.mean(errors))) < best[1]:
            best = reach, found
    return best
