"""Randomized trees beside a Gaussian process: each counts as much as its latest predictions were right."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.strategies.forest import Forest
from tunewright.strategies.surrogate import log_improvement

Array = NDArray[np.float64]

MEMORY = 0.92
"""How much of the mean squared error is kept when a prediction is compared with its trial."""

SHARPNESS = 3.0
"""How strongly the ratio of the errors counts: 1 means that weights are inverse to squared errors."""

REFIT_RATIO = 1.04
"""The trees are fitted again when there are so many times as many trials."""

SPREAD_SCALE = 1.5
"""Factor on the spread of the trees, which see the same trials and agree too much."""


class TreeModel:
    """The trees, and how much they count."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.forest = Forest(rng, trees=24, levels=8)
        self._fitted = 0
        self._errors = np.ones(2)

    def learn(self, points: NDArray[Any], values: Array) -> None:
        """Fits the trees if there are enough new trials."""
        if len(values) >= REFIT_RATIO * self._fitted:
            self._fitted = len(values)
            self.forest.fit(points, values)

    def compare(self, process: float, trees: float, value: float) -> None:
        """Takes in the value of a trial for which the process and the trees predicted something."""
        errors = np.minimum(np.square([process - value, trees - value]), 4.0)
        self._errors = MEMORY * self._errors + (1 - MEMORY) * errors

    @property
    def weight(self) -> float:
        """The weight of the trees, from 0 to 1."""
        process, trees = (self._errors + 1e-3) ** SHARPNESS
        return float(process / (process + trees))

    def combine(self, scores: Array, points: NDArray[Any], best: float) -> Array:
        """Returns the log of the expected improvement by both models, from that by the process."""
        mean, spread = self.forest.predict(points)
        own = log_improvement(mean, SPREAD_SCALE * spread, best)
        return np.asarray(np.logaddexp(np.log(1 - self.weight) + scores, np.log(self.weight) + own))
