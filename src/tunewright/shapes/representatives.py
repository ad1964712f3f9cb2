"""The shapes that stand for all while many are tuned together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tunewright.shapes.table import Floats, ShapeTable

MANY = 48
"""So many shapes are all tuned."""

FEWEST = 8
"""Of more shapes, so many are tuned at least: with fewer, only one of the models predicts."""

START, GROWTH = 24, 1.5
"""How many are tuned at first if the number of trials is not limited, and by which factor they grow."""

PER_SHAPE = 5
"""Trials of each of them, after which there are more."""


class Representatives:
    """Shapes that are drawn by weight; those with trials come first."""

    def __init__(self, table: ShapeTable, trials: int | None, seed: int) -> None:
        tried = ~np.isnan(table.seconds).all(axis=1)
        # Exponential times at the rate of the weights come in the order of draws by weight, none of them twice.
        times = np.random.default_rng(seed).exponential(size=len(table.shapes)) / table.weights
        self._order = np.lexsort((times, ~tried))
        self._count = max(int(tried.sum()), START if trials is None else max(FEWEST, trials // PER_SHAPE))
        if len(table.shapes) <= MANY:
            self._count = len(table.shapes)

    def shapes(self, seconds: Floats) -> list[int]:
        """Returns their numbers; more than before as soon as these had their trials."""
        if np.count_nonzero(~np.isnan(seconds)) >= PER_SHAPE * self._count:
            self.grow()
        return sorted(self._order[: self._count].tolist())

    def grow(self) -> bool:
        """Takes more of the shapes; returns whether there were any."""
        before, self._count = self._count, min(len(self._order), int(GROWTH * self._count) + 1)
        return self._count > before

    @staticmethod
    def standing_for_all(table: ShapeTable, shapes: list[int]) -> ShapeTable:
        """Returns the table of some shapes, on which the weight of all others is divided evenly."""
        part = table.part(shapes)
        others = (table.weights.sum() - part.weights.sum()) / len(shapes)
        return replace(part, weights=part.weights + others)
