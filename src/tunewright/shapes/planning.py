"""Where trials go when many shapes are tuned together: a plan over a table that fills as trials are made.

First some shapes get two trials each, those that make the predictions for all others most certain: random configs, in
which each value of a knob is as frequent as any other, and as soon as enough shapes were tried, one of the two is what
is predicted to be the fastest. Then trials go where most time is expected to be saved, by the weights of the shapes.

Of many shapes, some that are drawn by weight stand for all. A trial on each of them would find the best config of none,
and what was found on some is predicted well for others. The longer the search is, the more shapes are tuned.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tunewright.shapes.draws import BalancedDraws
from tunewright.shapes.features import Features
from tunewright.shapes.joint_model import JointModel
from tunewright.shapes.representatives import Representatives
from tunewright.shapes.selection import expected_gains, shapes_to_tune, trials_to_make
from tunewright.shapes.table import Floats, ShapeTable

EACH = 2
"""Trials of each of the first shapes: many shapes tell more than many trials of one."""

DRAWN_SHAPES = 12
"""The first of them get random configs only."""

FIRST_SHAPES, FIRST_SHARE = 24, 0.5
"""How many shapes come first; if the number of trials is limited, the share of it that they get."""

ROUND = 16
"""Trials of a round, at most one of each of half of the shapes; then the model is asked again."""

LEAST_WEIGHT = 1e-12
"""Of a shape, as a share of the largest: sums of weights must be numbers."""

WORTH = 0.002
"""The search ends when no trial is expected to gain a larger share of its shape's time."""

Trials = list[tuple[int, int]]
"""Shapes and configs to try on them."""


class TrialPlan:
    """Decides which configs are tried next on which shape."""

    def __init__(self, table: ShapeTable, *, trials: int | None = None, seed: int = 0) -> None:
        weights = np.maximum(table.weights / table.weights.max(), LEAST_WEIGHT)
        self._table, self._rng = replace(table, weights=weights), np.random.default_rng(seed)
        self.seconds: Floats = table.seconds.copy()
        self._features = Features(len(table.names), table.configs)
        self._draws = BalancedDraws(self._features.levels, self._rng)
        self._first = FIRST_SHAPES if trials is None else max(2, int(FIRST_SHARE * trials) // EACH)
        self._representatives = Representatives(self._table, trials, seed)

    @property
    def table(self) -> ShapeTable:
        """All trials so far."""
        return replace(self._table, seconds=self.seconds.copy())

    def next(self) -> Trials:
        """Returns the next trials; none if nothing is worth it. Tell their times in `seconds` before asking again."""
        while True:
            shapes = self._representatives.shapes(self.seconds)
            part = self._representatives.standing_for_all(self._table, shapes)
            if wanted := self._next_of(replace(part, seconds=self.seconds[shapes])):
                return [(shapes[shape], config) for shape, config in wanted]
            if not self._representatives.grow():
                return []

    def _next_of(self, table: ShapeTable) -> Trials:
        """Returns the next trials of a table that has some of the shapes."""
        untried = np.isnan(table.seconds)
        if len(table.shapes) - untried.all(axis=1).sum() < min(self._first, len(table.shapes)):
            (shape,) = shapes_to_tune(table, 1, self._features)
            return [(shape, config) for config in self._first_configs(table, shape)]
        return self._next_round(table) if table.tuned else self._drawn_round(untried)

    def _first_configs(self, table: ShapeTable, shape: int) -> list[int]:
        count = min(EACH, len(table.configs))
        if len(table.tuned) < DRAWN_SHAPES:
            return self._draws.next(count)
        best = JointModel(table, self._features).best(table.shapes[shape])
        return [best, *self._draws.next(count - 1, without=best)]

    def _drawn_round(self, untried: NDArray[np.bool_]) -> Trials:
        """Returns a random config for some shapes, as long as too little works for a model."""
        left = self._rng.permutation(np.flatnonzero(untried.any(axis=1)))[:ROUND].tolist()
        return [(shape, int(self._rng.choice(np.flatnonzero(untried[shape])))) for shape in left]

    def _next_round(self, table: ShapeTable) -> Trials:
        """Returns the trials from which most is expected, at most one of each shape."""
        model = JointModel(table, self._features)
        found = trials_to_make(table, min(ROUND, max(1, len(table.shapes) // 2)), model)
        return [(shape, config) for shape, config in found if self._is_worth(table, model, shape, config)]

    @staticmethod
    def _is_worth(table: ShapeTable, model: JointModel, shape: int, config: int) -> bool:
        untried = not table.works[shape].any()
        return untried or bool(np.exp(expected_gains(table, model, shape)[config]) >= WORTH)
