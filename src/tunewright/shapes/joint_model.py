"""A model of time over shape and config together, so that a trial at one shape informs all others.

Two kinds of models predict: a sum for the logarithm of a time, and costs, whose sum is the time. Where they are wrong
they are so in different ways, so their mean is better than either. Each counts by the square of its error on
shapes that it was not fitted to.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunewright.errors import SettingsError
from tunewright.shapes.additive_model import AdditiveModel, center
from tunewright.shapes.cost_model import CostModels
from tunewright.shapes.features import Features
from tunewright.shapes.table import Floats, ShapeTable

__all__ = ["JointModel", "center"]

MIN_SHAPES = 8
"""With fewer tuned shapes, nothing is said about costs."""

CLEAR = 0.5
"""A tile is named if it matters at least so much as the one that matters most."""


class JointModel:
    """Predicts the times of all configs on any shape, up to a factor of the shape."""

    def __init__(self, table: ShapeTable, features: Features | None = None) -> None:
        """Takes the features of these configs, if they were made before: making them takes time."""
        if not table.tuned:
            raise SettingsError("the model needs a shape of which two configs were timed; tune some shapes first")
        self.table = table
        self.features = features or Features(len(table.names), table.configs)
        self._sum = AdditiveModel(table, self.features)
        self.error = self._sum.error
        enough = len(table.tuned) >= MIN_SHAPES
        self._costs = CostModels(table, self.features, self._tiles_by_size()) if enough else None
        self._share = self.error**2 / (self.error**2 + self._costs.error**2) if self._costs else 0.0

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
        by_sum = self._sum.predict(sizes)
        return by_sum if self._costs is None else by_sum + self._share * (self._costs.predict(sizes) - by_sum)

    def variance(self, sizes: Sequence[int]) -> Floats:
        """Returns how uncertain each prediction is, as a variance: more where the two kinds of models disagree."""
        by_sum = self._sum.variance(sizes)
        if self._costs is None:
            return by_sum
        apart = self._costs.predict(sizes) - self._sum.predict(sizes)
        return np.asarray(by_sum + self._share * (1 - self._share) * apart**2)

    def error_near(self, sizes: Sequence[int]) -> float:
        """Returns the mean squared error on tuned shapes near a shape."""
        return self._sum.error_near(sizes)

    def best(self, sizes: Sequence[int]) -> int:
        """Returns the config that is predicted to be the fastest."""
        return int(self.predict(sizes).argmin())
