"""Which shapes to tune next: those whose trials make the predictions for all shapes most certain.

The wrong config is chosen where the model cannot tell configs apart, so the expected regret over all shapes falls with
the variance of its predictions. What a trial does to the variance is known before it is made: it depends on features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tunewright.shapes.features import Features
from tunewright.shapes.joint_model import FIRST_PENALTY, MIN_SHAPES, JointModel, center
from tunewright.shapes.table import Floats, ShapeTable
from tunewright.strategies.surrogate import log_improvement

PRIOR = FIRST_PENALTY
"""The penalty before enough shapes are tuned to choose one: the one that the model starts from."""

FIRST = 1e3
"""What is expected of the first trial of a shape: more than of any other."""

TRIED, JUDGED = 44, 22
"""Configs of each shape that stand for all: as trials, and as predictions."""


@dataclass(frozen=True)
class Uncertainty:
    """The covariance of a model's weights, and the features of each shape in the model's columns."""

    covariance: Floats
    rows: list[Floats]

    def left_after(self, shape: int, judged: Floats, weights: Floats) -> float:
        """Returns the weighted sum of variances at `judged` that is left after a shape is tuned."""
        tried, crossed = _sample(self.rows[shape], TRIED), judged @ self.covariance
        inner = np.linalg.cholesky(tried @ self.covariance @ tried.T + np.eye(len(tried)))
        known = np.linalg.solve(inner, tried @ crossed.T)
        return float(((crossed * judged).sum(axis=1) - (known**2).sum(axis=0)).clip(min=0) @ weights)

    def after(self, shape: int) -> Uncertainty:
        """Returns what is left after a shape is tuned."""
        tried = _sample(self.rows[shape], TRIED)
        crossed = tried @ self.covariance
        known = crossed.T @ np.linalg.solve(crossed @ tried.T + np.eye(len(tried)), crossed)
        return Uncertainty(self.covariance - known, self.rows)


def shapes_to_tune(
    table: ShapeTable, count: int = 1, features: Features | None = None, model: JointModel | None = None
) -> list[int]:
    """Returns the shapes without trials whose tuning helps all shapes most, by their weights; the best first.

    What their times will say is not known yet: ask again after each, if there is time for it. A `model` of the table is
    used, if there is one.
    """
    features = features or Features(len(table.names), table.configs)
    left = [shape for shape in range(len(table.shapes)) if shape not in table.tuned]
    uncertainty, chosen = _uncertainty(table, features, model), list[int]()
    judged = [_sample(rows, JUDGED) for rows in uncertainty.rows]
    weights = np.concatenate([np.full(len(rows), w) for rows, w in zip(judged, table.weights, strict=True)])
    stacked = np.concatenate(judged)
    while left and len(chosen) < count:
        remaining = {shape: uncertainty.left_after(shape, stacked, weights) for shape in left}
        chosen.append(min(remaining, key=remaining.__getitem__))
        left.remove(chosen[-1])
        uncertainty = uncertainty.after(chosen[-1])
    return chosen


def _uncertainty(table: ShapeTable, features: Features, model: JointModel | None) -> Uncertainty:
    """Returns that of the model; before it can choose its features, of all features."""
    if len(table.tuned) >= MIN_SHAPES:
        model = model or JointModel(table, features)
        return Uncertainty(model.covariance, [model.centered(shape) for shape in table.shapes])
    rows = [center(features.of(sizes)) for sizes in table.sizes]
    tried = [_sample(rows[shape], TRIED) for shape in table.tuned]
    grams = sum((part.T @ part for part in tried), np.zeros((features.count, features.count)))
    covariance = np.linalg.inv(grams + PRIOR * np.eye(features.count))
    return Uncertainty(covariance.astype(np.float64, copy=False), rows)


def _sample(rows: Floats, count: int) -> Floats:
    """Returns about `count` rows at equal distances."""
    return rows[:: max(1, len(rows) // count)]


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
    works, predicted = table.works[shape], model.predict(table.shapes[shape])
    if works.any():
        times = np.log(table.seconds[shape, works])
        mean = predicted + (times - predicted[works]).mean()
        spread = np.sqrt(model.variance(table.shapes[shape]) + model.choice.error)
        gains = log_improvement(mean, spread, float(times.min()))
    else:
        gains = FIRST - predicted
    return np.where(np.isnan(table.seconds[shape]), gains, -np.inf)


def replay_order(table: ShapeTable, count: int) -> list[int]:
    """Returns the shapes of a full table in the order they would be tuned in: each after the times of the last."""
    features = Features(len(table.names), table.configs)
    tuned: list[int] = []
    while len(tuned) < min(count, len(table.shapes)):
        tuned += shapes_to_tune(table.only(tuned), 1, features)
    return tuned
