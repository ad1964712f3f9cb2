"""Randomized trees beside a Gaussian process: each counts as much as its latest predictions deserve."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tunewright.strategies.forest import Forest
from tunewright.strategies.surrogate import log_improvement

Array = NDArray[np.float64]

MEMORY = 0.92
"""How much of what is known about both is kept when predictions are compared with their trial."""

SHARPNESS = 3.0
"""How strongly the ratio of the errors counts: 1 means that weights are inverse to squared errors."""

REFIT_RATIO = 1.04
"""The trees are fitted again when there are so many times as many trials."""

SPREAD_SCALE = 1.5
"""Factor on the spread of the trees, which see the same trials and agree too much."""

MIN_WEIGHT = 1e-3
"""With less than that the trees are not asked."""

MAX_SURPRISE = 4.0
"""Errors of so many standard deviations and more count the same: a single one must not decide alone."""

FIRST_FIT, FIRST_USE, FULL_USE = 24, 40, 80
"""Numbers of trials: the trees are fitted and compared, they begin to count, and they count as much as they deserve.

With few trials a distance between configs says more than splits do.
"""

MAX_PREDICTED = 1024
"""Candidates that the trees predict at once."""


class Prediction(NamedTuple):
    """What a model expects of a trial, and the standard deviation of that."""

    mean: float
    spread: float


class TreeModel:
    """The trees, and how much they count.

    In expected times a model counts by its squared errors. In the expected improvement it counts by how probable it
    said that the trials were: a model that is vague always sees a chance to improve, and would decide alone where the
    other one is right and sure.
    """

    def __init__(self, columns: int) -> None:
        """Takes how many columns the trees look at, the first of the points: more dilute what a random split finds."""
        self._columns = columns
        # Always the same: a search with trees and one without them agree until the trees count.
        self._rng = np.random.default_rng(0)
        self.forest = Forest(self._rng, trees=24, levels=8)
        self._fitted = 0
        self._errors, self._evidence = np.ones(2), np.zeros(2)

    def learn(self, points: NDArray[Any], values: Array) -> None:
        """Fits the trees if there are enough new trials."""
        if len(values) >= max(FIRST_FIT, REFIT_RATIO * self._fitted):
            self._fitted = len(values)
            self.forest.fit(points[:, : self._columns], values)

    def predict(self, points: NDArray[Any]) -> tuple[Array, Array]:
        """Returns mean and standard deviation at `points`."""
        mean, spread = self.forest.predict(points[:, : self._columns])
        return mean, SPREAD_SCALE * spread

    def compare(self, process: Prediction, trees: Prediction, value: float, noise: float) -> None:
        """Takes in the value of a trial for which the process and the trees predicted something."""
        means, spreads = np.array([process, trees]).T
        squares = np.square(means - value)
        variances = np.square(spreads) + noise**2 + 1e-4
        log_densities = -0.5 * (np.minimum(squares / variances, MAX_SURPRISE**2) + np.log(variances))
        self._evidence = MEMORY * self._evidence + log_densities
        self._errors = MEMORY * self._errors + (1 - MEMORY) * np.minimum(squares, 4.0)

    @property
    def is_fitted(self) -> bool:
        """Whether the trees predict anything yet."""
        return self._fitted > 0

    @property
    def weight_of_mean(self) -> float:
        """The weight of the trees in expected times, from 0 to 1."""
        process, trees = (self._errors + 1e-3) ** SHARPNESS
        return float(self._readiness * process / (process + trees))

    @property
    def weight(self) -> float:
        """The weight of the trees in the expected improvement, from 0 to 1."""
        process, trees = np.exp(self._evidence - self._evidence.max())
        return float(self._readiness * trees / (process + trees))

    @property
    def _readiness(self) -> float:
        return min(1.0, max(0.0, (self._fitted - FIRST_USE) / (FULL_USE - FIRST_USE)))

    def combine(self, scores: Array, points: NDArray[Any], best: float) -> Array:
        """Returns the log of the expected improvement by both models, from that by the process.

        This is the improvement expected of their mixture, in which disagreement is uncertainty.
        """
        weight = self.weight
        if weight < MIN_WEIGHT:
            return scores
        mixed = np.log1p(-weight) + scores
        chosen = self._screen(scores)
        own = log_improvement(*self.predict(points[chosen]), best)
        mixed[chosen] = np.logaddexp(mixed[chosen], np.log(weight) + own)
        return np.asarray(mixed)

    def _screen(self, scores: Array) -> NDArray[Any]:
        """Returns the candidates that the trees predict: all, or the process's best and as many of the others."""
        if len(scores) <= MAX_PREDICTED:
            return np.arange(len(scores))
        order = np.argpartition(-scores, MAX_PREDICTED // 2)
        others = self._rng.choice(order[MAX_PREDICTED // 2 :], MAX_PREDICTED // 2, replace=False)
        return np.concatenate([order[: MAX_PREDICTED // 2], others])
