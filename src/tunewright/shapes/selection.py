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

PRIOR = FIRST_PENALTY
"""The penalty before enough shapes are tuned to choose one: the one that the model starts from."""

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


def shapes_to_tune(table: ShapeTable, count: int = 1, features: Features | None = None) -> list[int]:
    """Returns the shapes without trials whose tuning helps all shapes most, by their weights; the best first.

    What their times will say is not known yet: ask again after each, if there is time for it.
    """
    features = features or Features(len(table.names), table.configs)
    left = [shape for shape in range(len(table.shapes)) if shape not in table.tuned]
    uncertainty, chosen = _uncertainty(table, features), list[int]()
    judged = [_sample(rows, JUDGED) for rows in uncertainty.rows]
    weights = np.concatenate([np.full(len(rows), w) for rows, w in zip(judged, table.weights, strict=True)])
    stacked = np.concatenate(judged)
    while left and len(chosen) < count:
        remaining = {shape: uncertainty.left_after(shape, stacked, weights) for shape in left}
        chosen.append(min(remaining, key=remaining.__getitem__))
        left.remove(chosen[-1])
        uncertainty = uncertainty.after(chosen[-1])
    return chosen


def _uncertainty(table: ShapeTable, features: Features) -> Uncertainty:
    """Returns that of the model; before it can choose its features, of all features."""
    if len(table.tuned) >= MIN_SHAPES:
        model = JointModel(table, features)
        return Uncertainty(model.covariance, [model.centered(shape) for shape in table.shapes])
    rows = [center(features.of(sizes)) for sizes in table.sizes]
    tried = [_sample(rows[shape], TRIED) for shape in table.tuned]
    grams = sum((part.T @ part for part in tried), np.zeros((features.count, features.count)))
    covariance = np.linalg.inv(grams + PRIOR * np.eye(features.count))
    return Uncertainty(covariance.astype(np.float64, copy=False), rows)


def _sample(rows: Floats, count: int) -> Floats:
    """Returns about `count` rows at equal distances."""
    return rows[:: max(1, len(rows) // count)]


def replay_order(table: ShapeTable, count: int) -> list[int]:
    """Returns the shapes of a full table in the order they would be tuned in: each after the times of the last."""
    features = Features(len(table.names), table.configs)
    tuned: list[int] = []
    while len(tuned) < min(count, len(table.shapes)):
        tuned += shapes_to_tune(table.only(tuned), 1, features)
    return tuned
