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
    """Shapes that are drawn by weight, and those that have trials already."""

    def __init__(self, table: ShapeTable, trials: int | None, seed: int) -> None:
        # Exponential times at the rate of the weights come in the order of draws by weight, none of them twice.
        self._order = np.argsort(np.random.default_rng(seed).exponential(size=len(table.shapes)) / table.weights)
        self._count = START if trials is None else max(FEWEST, trials // PER_SHAPE)
        if len(table.shapes) <= MANY:
            self._count = len(table.shapes)

    @property
    def drawn(self) -> set[int]:
        """The shapes that stand for all."""
        return set(self._order[: self._count].tolist())

    def shapes(self, seconds: Floats) -> list[int]:
        """Returns the numbers of all; more than before as soon as these had their trials."""
        made = ~np.isnan(seconds)
        if made.sum() >= PER_SHAPE * self._count:
            self.grow()
        return sorted(self.drawn | set(np.flatnonzero(made.any(axis=1)).tolist()))

    def grow(self) -> bool:
        """Takes more of the shapes; returns whether there were any."""
        before, self._count = self._count, min(len(self._order), int(GROWTH * self._count) + 1)
        return self._count > before

    def standing_for_all(self, table: ShapeTable, shapes: list[int]) -> ShapeTable:
        """Returns the table of some shapes; those that were drawn share the weight of all that are not among them."""
        others = np.delete(table.weights, shapes).sum()
        drawn = self.drawn
        share = [others / self._count if shape in drawn else 0.0 for shape in shapes]
        part = table.part(shapes)
        return replace(part, weights=part.weights + share)
