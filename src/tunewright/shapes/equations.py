"""The equations of a linear model over shapes, by trials while these are fewer than the features, else by features.

Both give the same answer. Searches have few trials and many features, so the first is several times as fast there; the
second does not grow with trials.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from tunewright.shapes.table import Floats, Indices

ShapeRows = tuple[Floats, Floats]
"""The centered features and times of the trials of a shape."""


class ByTrials:
    """All trials, and which of them are left out together to measure the error."""

    def __init__(self, shapes: Iterable[ShapeRows], folds: int) -> None:
        rows, times = zip(*shapes, strict=True)
        self.rows, self.times = np.concatenate(rows), np.concatenate(times)
        self.moment, self.count = self.rows.T @ self.times, len(self.times)
        self._shape = np.repeat(np.arange(len(times)), [len(own) for own in times])
        fold = self._shape % folds
        self._folds: list[Indices] = [np.flatnonzero(fold == number) for number in range(min(folds, len(times)))]

    def covariance(self, scales: Floats) -> Floats:
        """Returns the covariance of the weights as a ratio to the noise; `scales` are their deviations before."""
        scaled = self.rows * scales
        inner = np.linalg.cholesky(scaled @ scaled.T + np.eye(self.count))
        known = np.linalg.solve(inner, scaled) * scales
        return np.asarray(np.diag(scales**2) - known.T @ known)

    def errors(self, scales: Floats) -> Floats:
        """Returns the mean squared error of each shape, predicted without the shapes of its fold."""
        scaled = self.rows * scales
        inverse = np.linalg.inv(scaled @ scaled.T + np.eye(self.count))
        missed, solved = np.zeros(self.count), inverse @ self.times
        for fold in self._folds:
            missed[fold] = np.linalg.solve(inverse[np.ix_(fold, fold)], solved[fold])
        return np.bincount(self._shape, missed**2) / np.bincount(self._shape)


@dataclass(frozen=True)
class FoldSums:
    """What a fold adds to the normal equations: products of its features and times."""

    gram: Floats
    moment: Floats
    count: int

    @classmethod
    def of(cls, rows: Floats, times: Floats) -> FoldSums:
        """Returns the sums of the trials of a shape."""
        return cls(rows.T @ rows, rows.T @ times, len(times))

    def plus(self, other: FoldSums) -> FoldSums:
        """Returns the sums of both."""
        return FoldSums(self.gram + other.gram, self.moment + other.moment, self.count + other.count)


class ByFeatures:
    """The sums over the trials of each fold; the trials themselves are not kept, but gone through twice."""

    def __init__(self, shapes: Iterable[ShapeRows], folds: int) -> None:
        self._shapes = shapes
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

    def errors(self, scales: Floats) -> Floats:
        """Returns the mean squared error of each shape, predicted without the shapes of its fold."""
        total, penalties = self._total, np.diag(scales**-2)
        weights = [
            np.linalg.solve(total.gram - part.gram + penalties, total.moment - part.moment) for part in self._folds
        ]
        predicted = ((times, rows @ weights[n % len(weights)]) for n, (rows, times) in enumerate(self._shapes))
        return np.array([np.mean((times - guess) ** 2) for times, guess in predicted])
