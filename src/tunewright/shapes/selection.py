"""Which shapes to tune next: those whose trials make the predictions for all shapes most certain.

The wrong config is chosen where the model cannot tell configs apart, so the expected regret over all shapes falls with
the variance of its predictions. What a trial does to the variance is known before it is made: it depends on features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

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

MOST_SHAPES, LEAST_SHAPES, MOST_CELLS = 200, 32, 100_000
"""Shapes that are looked at before a round of trials, and pairs of shape and config. Of more shapes, the heaviest are,
so that rounds are fast with thousands of shapes or configs."""


@dataclass(frozen=True)
class Uncertainty:
    """The covariance of weights, and the features of some configs on each shape.

    `judged` is the sum of their outer products over all shapes, by the weights of these: with it, what a trial does to
    the variance on all shapes costs no more than what it does on one.
    """

    covariance: Floats
    rows: Callable[[int], Floats]
    judged: Floats

    def gain(self, shape: int) -> float:
        """Returns by how much the sum of variances on all shapes falls if a shape is tuned."""
        crossed, inner = self._tuned(shape)
        return float(np.trace(np.linalg.solve(inner, crossed @ self.judged @ crossed.T)))

    def after(self, shape: int) -> Uncertainty:
        """Returns what is left after a shape is tuned."""
        crossed, inner = self._tuned(shape)
        return replace(self, covariance=self.covariance - crossed.T @ np.linalg.solve(inner, crossed))

    def _tuned(self, shape: int) -> tuple[Floats, Floats]:
        """Returns the covariances of trials of a shape with the weights, and with each other."""
        tried = self.rows(shape)
        crossed = tried @ self.covariance
        return crossed, crossed @ tried.T + np.eye(len(tried))


def shapes_to_tune(table: ShapeTable, count: int = 1, features: Features | None = None) -> list[int]:
    """Returns the shapes without trials whose tuning helps all shapes most, by their weights; the best first."""
    features = features or Features(len(table.names), table.configs)
    left = _heaviest(table, np.flatnonzero(np.isnan(table.seconds).all(axis=1)))
    uncertainty, chosen = _uncertainty(table, features), list[int]()
    while left and len(chosen) < count:
        chosen.append(max(left, key=uncertainty.gain))
        left.remove(chosen[-1])
        uncertainty = uncertainty.after(chosen[-1])
    return chosen


def _uncertainty(table: ShapeTable, features: Features) -> Uncertainty:
    """Returns what is left after the trials so far."""
    tried = [features.base_of(table.sizes[shape], _sample(table.works[shape])) for shape in table.tuned]
    grams = sum((part.T @ part for part in tried), np.zeros((features.base, features.base)))
    covariance = np.linalg.inv(grams + PRIOR * np.eye(features.base))
    every = _sample(np.ones(len(table.configs), dtype=bool))

    def rows(shape: int) -> Floats:
        return features.base_of(table.sizes[shape], every)

    judged = sum((weight * (rows(i).T @ rows(i)) for i, weight in _drawn(table).items()), np.zeros_like(grams))
    return Uncertainty(covariance.astype(np.float64, copy=False), rows, judged)


def _drawn(table: ShapeTable) -> dict[int, float]:
    """Returns shapes with their weights; of very many some that are drawn by weight, the same each time."""
    if len(table.shapes) <= MOST_SHAPES:
        return dict(enumerate(table.weights.tolist()))
    drawn = np.random.default_rng(0).choice(len(table.shapes), MOST_SHAPES, p=table.weights / table.weights.sum())
    return {shape: float(count) for shape, count in Counter(drawn.tolist()).items()}


def _heaviest(table: ShapeTable, shapes: Indices) -> list[int]:
    """Returns the shapes that weigh most for each trial that they had; of equals, some drawn at random."""
    most = max(LEAST_SHAPES, min(MOST_SHAPES, MOST_CELLS // len(table.configs)))
    if len(shapes) > most:
        shapes = np.random.default_rng(0).permutation(shapes)
        shares = table.weights[shapes] / (1 + (~np.isnan(table.seconds[shapes])).sum(axis=1))
        shapes = np.sort(shapes[np.argsort(-shares, kind="stable")[:most]])
    return [int(shape) for shape in shapes]


def _sample(configs: NDArray[np.bool_]) -> Indices:
    """Returns at most `SAMPLED` of the configs, drawn at random and the same each time."""
    return np.random.default_rng(0).permutation(np.flatnonzero(configs))[:SAMPLED]


def trials_to_make(table: ShapeTable, count: int, model: JointModel) -> list[tuple[int, int]]:
    """Returns the next trials as shapes and configs, at most one of each shape: those from which most is expected.

    What is expected is how much faster a config may be than the best of its shape so far, by the weight of the shape.
    Shapes of which nothing works yet come first, the heaviest before others.
    """
    expected = []
    for shape in _heaviest(table, np.flatnonzero(np.isnan(table.seconds).any(axis=1))):
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
