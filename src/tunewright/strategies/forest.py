"""Extremely randomized regression trees in numpy, fitted level by level: all nodes of all trees are split at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAF = -1
"""The column of a node that is not split."""

MIN_SPREAD = 0.05
"""Least standard deviation of a prediction: trees that agree may all be wrong."""


class Forest:
    """Predicts values and how uncertain they are, by how much the trees disagree.

    A node takes the best of a few random splits, each of a random column at a random place. Trees are stored as heaps:
    the children of node i are 2i + 1 and 2i + 2. Fitting costs trees * trials * tries per level, predicting trees *
    candidates per level.
    """

    def __init__(
        self, rng: np.random.Generator, *, trees: int = 32, tries: int = 6, levels: int = 9, min_split: int = 3
    ) -> None:
        self._rng, self._trees, self._tries, self._levels, self._min_split = rng, trees, tries, levels, min_split
        nodes = (1 << (levels + 1)) - 1
        self._columns = np.full((trees, nodes), LEAF, dtype=np.int32)
        self._places = np.zeros((trees, nodes), dtype=np.float32)
        self._means = np.zeros((trees, nodes))
        self._depth = 0

    def fit(self, points: NDArray[Any], values: Array) -> None:
        """Fits all trees to `values` at `points`; every tree sees all of them."""
        self._columns.fill(LEAF)
        samples = np.tile(np.arange(len(values)), self._trees)
        nodes = np.zeros(len(samples), dtype=np.int64)
        owners = np.repeat(np.arange(self._trees), len(values))
        spread = float(values.std()) * 1e-6 + 1e-12
        for level in range(self._levels + 1):
            order = np.argsort(owners * (2 << self._levels) + nodes, kind="stable")
            samples, nodes, owners = samples[order], nodes[order], owners[order]
            starts = np.flatnonzero(np.r_[True, (np.diff(nodes) != 0) | (np.diff(owners) != 0)])
            counts = np.diff(np.r_[starts, len(samples)])
            own, node = owners[starts], nodes[starts]
            sums = np.add.reduceat(values[samples], starts)
            self._means[own, node] = sums / counts
            self._depth = level
            if level == self._levels:
                return
            columns, places, gains = self._split(points, values, samples, starts)
            splits = (counts >= self._min_split) & (gains > sums**2 / counts + spread)
            self._columns[own[splits], node[splits]] = columns[splits]
            self._places[own[splits], node[splits]] = places[splits]
            groups = np.repeat(np.arange(len(starts)), counts)
            kept = splits[groups]
            samples, owners, groups = samples[kept], owners[kept], groups[kept]
            right = points[samples, columns[groups]] > places[groups]
            nodes = 2 * nodes[kept] + 1 + right
            if not len(samples):
                return

    def _split(
        self, points: NDArray[Any], values: Array, samples: NDArray[Any], starts: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], Array]:
        """Returns the best of a few random splits of every group of samples: column, place and sum of squares."""
        counts = np.diff(np.r_[starts, len(samples)])
        groups = np.repeat(np.arange(len(starts)), counts)
        columns = self._rng.integers(points.shape[1], size=(self._tries, len(starts)))
        found = points[samples, columns[:, groups]]
        low = np.minimum.reduceat(found, starts, axis=1)
        high = np.maximum.reduceat(found, starts, axis=1)
        places = low + self._rng.random(low.shape, dtype=np.float32) * (high - low)
        left = found <= places[:, groups]
        here = values[samples]
        left_counts = np.add.reduceat(left, starts, axis=1, dtype=np.int64)
        left_sums = np.add.reduceat(np.where(left, here, 0.0), starts, axis=1)
        right_counts, right_sums = counts - left_counts, np.add.reduceat(here, starts) - left_sums
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = left_sums**2 / left_counts + right_sums**2 / right_counts
        gains = np.where((left_counts > 0) & (right_counts > 0), gains, -np.inf)
        best = gains.argmax(0), np.arange(len(starts))
        return columns[best], places[best], gains[best]

    def predict(self, points: NDArray[Any]) -> tuple[Array, Array]:
        """Returns mean and standard deviation over the trees at `points`."""
        leaves = self._leaves(np.ascontiguousarray(points, dtype=np.float32))
        return leaves.mean(0), np.maximum(leaves.std(0), MIN_SPREAD)

    def _leaves(self, points: NDArray[np.float32]) -> Array:
        """Returns the mean of the leaf that each point falls into, a row for each tree."""
        flat, rows = points.ravel(), np.arange(len(points), dtype=np.int32) * np.int32(points.shape[1])
        # Nodes of all trees in one array: the children of i, counted within its tree, are 2i + 1 and 2i + 2.
        roots = np.arange(self._trees, dtype=np.int32)[:, None] * np.int32(self._columns.shape[1])
        columns, places = self._columns.ravel(), self._places.ravel()
        nodes = np.repeat(roots, len(points), axis=1)
        for _ in range(self._depth):
            column = columns.take(nodes)
            right = flat.take(rows + column, mode="wrap") > places.take(nodes)
            nodes = np.where(column < 0, nodes, 2 * nodes - roots + 1 + right)
        return np.asarray(self._means.ravel().take(nodes))
