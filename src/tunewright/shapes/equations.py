"""The equations of a linear model over shapes, by trials while these are fewer than the features, else by features.

Both give the same answer. Searches have few trials and many features, so the first is several times as fast there; the
second does not grow with trials.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from tunewright.shapes.table import Floats, Indices

ShapeRows = tuple[Floats, Floats]
"""The centered features and times of the trials of a shape."""


class ByTrials:
    """All trials, and which of them are left out together to measure the error."""

    def __init__(self, shapes: Sequence[ShapeRows], folds: int) -> None:
        self.rows = np.concatenate([rows for rows, _ in shapes])
        self.times = np.concatenate([times for _, times in shapes])
        self.moment, self.count = self.rows.T @ self.times, len(self.times)
        fold = np.repeat(np.arange(len(shapes)) % folds, [len(times) for _, times in shapes])
        self._folds: list[Indices] = [np.flatnonzero(fold == number) for number in range(min(folds, len(shapes)))]

    def covariance(self, scales: Floats) -> Floats:
        """Returns the covariance of the weights as a ratio to the noise; `scales` are their deviations before."""
        scaled = self.rows * scales
        inner = np.linalg.cholesky(scaled @ scaled.T + np.eye(self.count))
        known = np.linalg.solve(inner, scaled) * scales
        return np.asarray(np.diag(scales**2) - known.T @ known)

    def error(self, scales: Floats) -> float:
        """Returns the mean squared error of folds, each predicted from the others."""
        scaled = self.rows * scales
        inverse = np.linalg.inv(scaled @ scaled.T + np.eye(self.count))
        solved = inverse @ self.times
        missed = [np.linalg.solve(inverse[np.ix_(fold, fold)], solved[fold]) for fold in self._folds]
        return float(np.mean([np.mean(one**2) for one in missed]))


@dataclass(frozen=True)
class FoldSums:
    """What a fold adds to the normal equations: products of its features and times."""

    gram: Floats
    moment: Floats
    square: float
    count: int

    @classmethod
    def of(cls, rows: Floats, times: Floats) -> FoldSums:
        """Returns the sums of the trials of a shape."""
        return cls(rows.T @ rows, rows.T @ times, float(times @ times), len(times))

    def plus(self, other: FoldSums) -> FoldSums:
        """Returns the sums of both."""
        square, count = self.square + other.square, self.count + other.count
        return FoldSums(self.gram + other.gram, self.moment + other.moment, square, count)


class ByFeatures:
    """The sums over the trials of each fold; the trials themselves are not kept."""

    def __init__(self, shapes: Iterable[ShapeRows], folds: int) -> None:
        self._folds: list[FoldSums] = []
        for number, (rows, times) in enumerate(shapes):
            sums = FoldSums.of(rows, times)
            if number < folds:
                self._folds.append(sums)
            else:
                self._folds[number % folds] = self._folds[number % folds].plus(sums)
        self._total = reduce(FoldSums.plus, self._folds)
        self.moment, self.count = self._total.moment, self._total.count

    def covariance(self, scales: Floats) -> Floats:
        """Returns the covariance of the weights as a ratio to the noise; `scales` are their deviations before."""
        inner = np.linalg.inv(scales[:, None] * self._total.gram * scales + np.eye(len(scales)))
        return np.asarray(scales[:, None] * inner * scales)

    def error(self, scales: Floats) -> float:
        """Returns the mean squared error of folds, each predicted from the others."""
        total, penalties, errors = self._total, np.diag(scales**-2), list[float]()
        for part in self._folds:
            weights = np.linalg.solve(total.gram - part.gram + penalties, total.moment - part.moment)
            missed = part.square - 2 * weights @ part.moment + weights @ part.gram @ weights
            errors.append(float(missed) / part.count)
        return float(np.mean(errors))
