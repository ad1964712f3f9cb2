"""A model of time over shape and config together: the logarithm of a time as a sum.

The logarithm of a config's time, relative to the mean over the configs of its shape, is a sum over features with
normal weights. Nobody says which tiles divide which sizes: all that may do so are parts of the sum. How large the
weights of a part are is learned from the trials (automatic relevance determination), so parts that explain nothing
vanish. What the sum leaves over is carried to shapes nearby. How wrong predictions are is measured by leaving shapes
out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tunewright.shapes.equations import ByFeatures, ByTrials, ShapeRows
from tunewright.shapes.features import MAX_KEPT, Features, TileGroup
from tunewright.shapes.local_mean import LocalMean
from tunewright.shapes.residuals import Residuals
from tunewright.shapes.table import Floats, ShapeTable

NOISE = 5e-4
"""The variance of the noise for each trial of a shape, in the mean: errors agree within a shape, so more trials of it
say little more."""

FIRST_VARIANCE, LEAST_VARIANCE = 1e-3, 1e-7
"""Of the weights, before they are learned, and of those that explain nothing."""

ROUNDS = 4
"""How often the variances of the weights are learned anew."""

MIN_SHAPES, FIRST_ERROR, LEAST_ERROR = 4, 0.01, 1e-6
"""With fewer tuned shapes, leaving one out says nothing: what is taken for the mean squared error then."""

MAX_FOLDS = 8
"""Beyond so many shapes, several are left out at once."""


class AdditiveModel:
    """Predicts the times of all configs on any shape, up to a factor of the shape."""

    def __init__(self, table: ShapeTable, features: Features) -> None:
        self.table, self.features = table, features
        self._trials = CenteredTrials(features, table)
        few = int(table.works[table.tuned].sum()) < features.count
        equations = ByTrials(self._trials, MAX_FOLDS) if few else ByFeatures(self._trials, MAX_FOLDS)
        self._noise = NOISE * equations.count / len(table.tuned)
        scales, self.covariance, self._weights = self._learn(equations)
        enough = len(table.tuned) >= MIN_SHAPES
        errors = equations.errors(scales) if enough else np.full(len(table.tuned), FIRST_ERROR)
        errors = np.maximum(errors, LEAST_ERROR)
        self.error = float(errors.mean())
        contrasts = table.works[table.tuned].sum(axis=1) - 1
        self._errors = LocalMean(table.sizes[table.tuned], errors, contrasts)
        self._residuals = Residuals(table.sizes[table.tuned], self._left_over())

    def _learn(self, equations: ByTrials | ByFeatures) -> tuple[Floats, Floats, Floats]:
        """Returns the deviations of the weights before the trials, their covariance after them, and the weights."""
        parts = self.features.parts
        variances, members = np.full(len(parts), FIRST_VARIANCE), np.bincount(parts)
        for left in reversed(range(ROUNDS)):
            scales = np.sqrt(variances / self._noise)
            covariance = equations.covariance(scales)
            weights = covariance @ equations.moment
            if left:
                squares = weights**2 + self._noise * np.diag(covariance)
                variances = np.maximum(np.bincount(parts, squares) / members, LEAST_VARIANCE)[parts]
        return scales, covariance, weights

    def tile_parts(self) -> list[tuple[TileGroup, float]]:
        """Returns how much predictions vary by each size and tile, those that matter most first.

        Of very many shapes, some are looked at.
        """
        some = self.table.tuned[:: -(-len(self.table.tuned) // MAX_KEPT)]
        rows = np.concatenate([self.centered(self.table.shapes[shape]) for shape in some])
        columns = [self.features.columns(group) for group in range(len(self.features.groups))]
        parts = [float(np.std(rows[:, own] @ self._weights[own])) for own in columns]
        return sorted(zip(self.features.groups, parts, strict=True), key=lambda part: -part[1])

    def centered(self, sizes: Sequence[int]) -> Floats:
        """Returns the features of all configs, relative to their mean over the configs of a shape."""
        return center(self.features.of(np.array(sizes, dtype=np.float64)))

    def predict(self, sizes: Sequence[int]) -> Floats:
        """Returns the logarithm of the time of each config, relative to the mean over all configs."""
        return np.asarray(self.centered(sizes) @ self._weights + self._residuals.predict(sizes))

    def foresee(self, shape: int) -> tuple[Floats, Floats]:
        """Returns the logarithm of the time of each config on a shape with trials, and its variance."""
        sizes = self.table.shapes[shape]
        logs, trials = self.table.leveled(shape, self.predict(sizes))
        # The level of a shape is the mean of its trials, so it is uncertain while these are few.
        return logs, self.variance(sizes) + self.error_near(sizes) * (1 + 1 / trials)

    def variance(self, sizes: Sequence[int]) -> Floats:
        """Returns how uncertain each prediction is, as a variance."""
        rows = self.centered(sizes)
        return self.error_near(sizes) * np.asarray(((rows @ self.covariance) * rows).sum(axis=1))

    def error_near(self, sizes: Sequence[int]) -> float:
        """Returns the mean squared error on tuned shapes near a shape: some are harder to predict than others."""
        return self._errors.at(np.array(sizes, dtype=np.float64))

    def _left_over(self) -> Floats:
        """Returns the residuals by tuned shape and config; NaN where nothing was tried."""
        found = np.full((len(self.table.tuned), len(self.table.configs)), np.nan)
        for row, shape in zip(found, self.table.tuned, strict=True):
            rows, times = self._trials.of(shape)
            row[self.table.works[shape]] = times - rows @ self._weights
        return found


def center(rows: Floats) -> Floats:
    """Returns rows relative to their mean: what all configs of a shape share is no part of the model."""
    return np.asarray(rows - rows.mean(axis=0))


@dataclass(frozen=True)
class CenteredTrials:
    """Features and logarithms of times of what was tried on each tuned shape, relative to their means.

    They are made whenever they are gone through, since there may be too many to keep.
    """

    features: Features
    table: ShapeTable

    def __iter__(self) -> Iterator[ShapeRows]:
        return map(self.of, self.table.tuned)

    def of(self, shape: int) -> ShapeRows:
        """Returns those of a shape."""
        tried = np.flatnonzero(self.table.works[shape])
        times = np.log(self.table.seconds[shape, tried])
        rows = center(self.features.of(self.table.sizes[shape], tried))
        return rows, np.asarray(times - times.mean())
