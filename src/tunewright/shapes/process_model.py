"""A Gaussian process over shape and config: configs that are alike take alike times on shapes that are alike.

The logarithm of a time is the level of its shape, plus a function of the knobs, plus one of knobs, sizes and how tiles
divide sizes. How far likeness reaches in each of them is learned from the trials.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunewright.shapes.covariance import JITTER, Covariance, same_level
from tunewright.shapes.features import Features, division, knob_columns, shape_columns
from tunewright.shapes.local_mean import LocalMean
from tunewright.shapes.table import Floats, Indices, ShapeTable

MAX_TRIALS, FIT_TRIALS = 1000, 300
"""Trials that predictions are made from, and that hyperparameters are fitted to; of more, some drawn at random."""

FOLDS = 8
"""Beyond so many shapes, several are left out at once to measure the error."""

DIVIDED = 2
"""Columns of how a tile divides a size: work padded, and work left over."""

LEAST_DEVIATION = 1e-3
"""Times that differ by less are taken for equal."""

MAX_SURPRISE = 25.0
"""Squared errors of so many variances and more count the same: a single one must not decide alone."""


class ProcessModel:
    """Predicts the times of all configs on any shape; `error` is the mean squared one on shapes that are left out."""

    def __init__(self, table: ShapeTable, features: Features, tiles: Sequence[Sequence[tuple[str, ...]]]) -> None:
        """Takes the tiles of each size, those that matter most first."""
        self._table, self._knobs = table, knob_columns(table.configs)
        self._tiles = [(size, features.tiles[own[0]]) for size, own in enumerate(tiles) if own]
        sampled = _sampled_shapes(table)
        chosen = table.sample(MAX_TRIALS, sampled)
        self._shapes = np.repeat(sampled, [len(configs) for configs in chosen])
        logs = np.log(table.seconds[self._shapes, np.concatenate(chosen)])
        self._levels = _means(logs, self._shapes)
        self._deviation = max(float((logs - self._levels[self._shapes]).std()), LEAST_DEVIATION)
        values = (logs - self._levels[self._shapes]) / self._deviation
        self._points = np.concatenate(
            [self._columns(table.sizes[i], own) for i, own in zip(sampled, chosen, strict=True)]
        )
        self._covariance = Covariance(self._knobs.shape[1], self._points.shape[1])
        drawn = np.random.default_rng(0).permutation(len(values))[:FIT_TRIALS]
        self._covariance.fit(self._points[drawn], self._shapes[drawn], values[drawn])
        known = self._covariance.between(self._points, self._points) + same_level(self._shapes, self._shapes)
        self._inverse = np.linalg.inv(known + self._covariance.noise * np.eye(len(values)))
        self._solved = self._inverse @ values
        self._by_knobs = self._covariance.by_knobs(self._knobs, self._points)
        self.error = self._error()
        surprises = np.minimum(self._solved**2 / np.diag(self._inverse), MAX_SURPRISE)
        self._surprise = LocalMean(table.sizes[self._shapes], surprises, np.ones(len(values)), 1.0)

    def _columns(self, sizes: Floats, configs: Indices) -> Floats:
        """Returns knobs, sizes, and how tiles divide sizes: a row for each config."""
        here = np.repeat(shape_columns(sizes[None]), len(configs), axis=0)
        divided = [division(sizes[size], tile[configs])[:, :DIVIDED] for size, tile in self._tiles]
        return np.concatenate([self._knobs[configs], here, *divided], axis=1)

    def _error(self) -> float:
        """Returns the mean over shapes of the mean squared error of predictions without the shapes of their fold."""
        fold = np.unique(self._shapes, return_inverse=True)[1] % FOLDS
        missed = np.zeros(len(self._shapes))
        for number in range(FOLDS):
            own = np.flatnonzero(fold == number)
            if len(own):
                missed[own] = np.linalg.solve(self._inverse[np.ix_(own, own)], self._solved[own])
        squares = (missed - _means(missed, self._shapes)[self._shapes]) ** 2
        return float(_means(squares, self._shapes)[np.bincount(self._shapes) >= 2].mean()) * self._deviation**2

    def _cross(self, sizes: Floats) -> Floats:
        """Returns the covariance of all configs on a shape (rows) with the trials (columns)."""
        points = self._columns(sizes, np.arange(len(self._knobs)))
        return self._by_knobs + self._covariance.by_all(points, self._points)

    def predict(self, sizes: Sequence[int]) -> Floats:
        """Returns the logarithm of the time of each config, relative to the mean over all configs."""
        found = self._cross(np.array(sizes, dtype=np.float64)) @ self._solved * self._deviation
        return np.asarray(found - found.mean())

    def foresee(self, shape: int) -> tuple[Floats, Floats]:
        """Returns the logarithm of the time of each config on a shape with trials, and its variance.

        Variances are larger where trials near the shape were farther from what was predicted without each of them.
        """
        sizes = self._table.sizes[shape]
        if shape not in self._shapes:
            logs, trials = self._table.leveled(shape, self.predict(self._table.shapes[shape]))
            return logs, np.full_like(logs, self._surprise.at(sizes) * self.error * (1 + 1 / trials))
        cross = self._cross(sizes) + same_level(np.array([shape]), self._shapes)
        logs = self._levels[shape] + cross @ self._solved * self._deviation
        before = self._covariance.variance + same_level(np.array([shape]), np.array([shape])).item()
        left = np.maximum(before - ((cross @ self._inverse) * cross).sum(axis=1), JITTER)
        # What is noise to the process is mostly what it does not know of a config on this shape, so it counts.
        return logs, np.asarray(self._surprise.at(sizes) * (left + self._covariance.noise) * self._deviation**2)


def _sampled_shapes(table: ShapeTable) -> list[int]:
    """Returns the shapes whose trials are looked at: all, or of very many some that are drawn, the same each time."""
    most = MAX_TRIALS // 2
    if len(table.timed) <= most:
        return table.timed
    return sorted(np.random.default_rng(0).permutation(table.tuned)[:most].tolist())


def _means(values: Floats, groups: Indices) -> Floats:
    """Returns the mean of each group."""
    return np.asarray(np.bincount(groups, values) / np.maximum(np.bincount(groups), 1))
