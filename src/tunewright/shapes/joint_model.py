"""A model of time over shape and config together, so that a trial at one shape informs all others.

Three kinds of models predict: a sum for the logarithm of a time, costs, whose sum is the time, and a Gaussian process,
which goes by likeness. Where they are wrong they are so in different ways, so their mean is better than any of them.
Each counts by the square of its error on shapes that it was not fitted to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tunewright.errors import SettingsError
from tunewright.shapes.additive_model import AdditiveModel
from tunewright.shapes.cost_model import CostModels
from tunewright.shapes.features import Features
from tunewright.shapes.process_model import ProcessModel
from tunewright.shapes.table import Floats, ShapeTable

MIN_SHAPES = 8
"""With fewer tuned shapes, the sum predicts alone: too little says how wrong the others are."""

CLEAR = 0.5
"""A tile is named if it matters at least so much as the one that matters most."""

LEAST_ERROR = 1e-6


class ShapeModel(Protocol):
    """A model whose error was measured on shapes that it was not fitted to."""

    error: float

    def predict(self, sizes: Sequence[int]) -> Floats:
        """Returns the logarithm of the time of each config, relative to the mean over all configs."""
        ...

    def foresee(self, shape: int) -> tuple[Floats, Floats]:
        """Returns the logarithm of the time of each config on a shape with trials, and its variance."""
        ...


class JointModel:
    """Predicts the times of all configs on any shape, up to a factor of the shape.

    `shares` say how much each kind of model counts: the sum, costs and the process.
    """

    def __init__(self, table: ShapeTable, features: Features | None = None) -> None:
        """Takes the features of these configs, if they were made before: making them takes time."""
        if not table.tuned:
            raise SettingsError("the model needs a shape of which two configs were timed; tune some shapes first")
        self.table = table
        self.features = features or Features(len(table.names), table.configs)
        self._sum = AdditiveModel(table, self.features)
        self._models: list[ShapeModel] = [self._sum]
        if len(table.tuned) >= MIN_SHAPES:
            tiles = self._tiles_by_size()
            self._models += [CostModels(table, self.features, tiles), ProcessModel(table, self.features, tiles)]
        deserved = np.array([max(model.error, LEAST_ERROR) for model in self._models]) ** -2.0
        self.shares = deserved / deserved.sum()

    def _tiles_by_size(self) -> list[list[tuple[str, ...]]]:
        """Returns the tiles of each size, those that matter most first."""
        parts = self._sum.tile_parts()
        return [[group.knobs for group, _ in parts if group.size == size] for size in range(len(self.table.names))]

    @property
    def tiles(self) -> list[tuple[str, tuple[str, ...]]]:
        """Which sizes are divided by which knobs, as far as trials show it, the clearest first: `("M", ("MR",))`."""
        parts = self._sum.tile_parts()
        most = max((part for _, part in parts), default=0.0)
        return [(self.table.names[group.size], group.knobs) for group, part in parts if part > CLEAR * most]

    def predict(self, sizes: Sequence[int]) -> Floats:
        """Returns the logarithm of the time of each config, relative to the mean over all configs."""
        return np.asarray(self.shares @ np.array([model.predict(sizes) for model in self._models]))

    def foresee(self, shape: int) -> tuple[Floats, Floats]:
        """Returns the logarithm of the time of each config on a shape with trials, and its variance.

        Variances are larger where the models disagree.
        """
        logs, variances = (np.array(found) for found in zip(*(m.foresee(shape) for m in self._models), strict=True))
        mean = self.shares @ logs
        return mean, np.asarray(self.shares @ (variances + (logs - mean) ** 2))

    def best(self, sizes: Sequence[int]) -> int:
        """Returns the config that is predicted to be the fastest."""
        return int(self.predict(sizes).argmin())
