"""Which shapes to tune next: those whose trials make the predictions for all shapes most certain.

The wrong config is chosen where the model cannot tell configs apart, so the expected regret over all shapes falls with
the variance of its predictions. What a trial does to the variance is known before it is made: it depends on features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tunewright.shapes.features import Features
from tunewright.shapes.joint_model import JointModel
from tunewright.shapes.table import Floats, Indices, ShapeTable
from tunewright.strategies.surrogate import log_improvement

PRIOR = 10.0
"""The penalty of the weights. Only columns of knobs, sizes and their alignment are judged: how tiles divide sizes is
known too little of before anything is timed, and shapes that are asked for to learn it teach less of all else. Without
alignment, all that is asked for may be powers of two, which teach nothing about what tiles leave over."""

FIRST = 1e3
"""What is expected of the first trial of a shape: more than of any other."""

SAMPLED = 22
"""Configs of each shape that stand for all."""


@dataclass(frozen=True)
class Uncertainty:
    """The covariance of weights, and the features of some configs on each shape."""

    covariance: Floats
    rows: list[Floats]

    def left_after(self, shapes: Sequence[int], weights: Floats) -> dict[int, float]:
        """Returns the sum of variances on all shapes, by their weights, that is left after each of some is tuned."""
        judged = np.concatenate(self.rows)
        crossed = judged @ self.covariance
        before, by_row = (crossed * judged).sum(axis=1), np.repeat(weights, [len(rows) for rows in self.rows])
        found = {}
        for shape in shapes:
            tried = self.rows[shape]
            inner = np.linalg.cholesky(tried @ self.covariance @ tried.T + np.eye(len(tried)))
            known = np.linalg.solve(inner, tried @ crossed.T)
            found[shape] = float((before - (known**2).sum(axis=0)).clip(min=0) @ by_row)
        return found

    def after(self, shape: int) -> Uncertainty:
        """Returns what is left after a shape is tuned."""
        tried = self.rows[shape]
        crossed = tried @ self.covariance
        known = crossed.T @ np.linalg.solve(crossed @ tried.T + np.eye(len(tried)), crossed)
        return Uncertainty(self.covariance - known, self.rows)


def shapes_to_tune(table: ShapeTable, count: int = 1, features: Features | None = None) -> list[int]:
    """Returns the shapes without trials whose tuning helps all shapes most, by their weights; the best first."""
    features = features or Features(len(table.names), table.configs)
    left = np.flatnonzero(np.isnan(table.seconds).all(axis=1)).tolist()
    uncertainty, chosen = _uncertainty(table, features), list[int]()
    while left and len(chosen) < count:
        remaining = uncertainty.left_after(left, table.weights)
        chosen.append(min(remaining, key=remaining.__getitem__))
        left.remove(chosen[-1])
        uncertainty = uncertainty.after(chosen[-1])
    return chosen


def _uncertainty(table: ShapeTable, features: Features) -> Uncertainty:
    """Returns what is left after the trials so far."""
    tried = [features.base_of(table.sizes[shape], _sample(table.works[shape])) for shape in table.tuned]
    grams = sum((part.T @ part for part in tried), np.zeros((features.base, features.base)))
    covariance = np.linalg.inv(grams + PRIOR * np.eye(features.base))
    every = _sample(np.ones(len(table.configs), dtype=bool))
    rows = [features.base_of(sizes, every) for sizes in table.sizes]
    return Uncertainty(covariance.astype(np.float64, copy=False), rows)


def _sample(configs: NDArray[np.bool_]) -> Indices:
    """Returns at most `SAMPLED` of the configs, drawn at random and the same each time."""
    return np.random.default_rng(0).permutation(np.flatnonzero(configs))[:SAMPLED]


def trials_to_make(table: ShapeTable, count: int, model: JointModel) -> list[tuple[int, int]]:
    """Returns the next trials as shapes and configs, at most one of each shape: those from which most is expected.

    What is expected is how much faster a config may be than the best of its shape so far, by the weight of the shape.
    Shapes of which nothing works yet come first, the heaviest before others.
    """
    expected = []
    for shape in np.flatnonzero(np.isnan(table.seconds).any(axis=1)).tolist():
        gains = expected_gains(table, model, shape)
        config = int(gains.argmax())
        expected.append((float(gains[config]) + float(np.log(table.weights[shape])), shape, config))
    expected.sort(key=lambda one: (-one[0], one[1]))
    return [(shape, config) for _, shape, config in expected[:count]]


def expected_gains(table: ShapeTable, model: JointModel, shape: int) -> Floats:
    """Returns the logarithm of the expected gain of each config on a shape; -inf for those that were tried."""
    works = table.works[shape]
    if works.any():
        logs, variance = model.foresee(shape)
        gains = log_improvement(logs, np.sqrt(variance), float(np.log(table.seconds[shape, works].min())))
    else:
        gains = FIRST - model.predict(table.shapes[shape])
    return np.where(np.isnan(table.seconds[shape]), gains, -np.inf)
