"""Where trials go when many shapes are tuned together: a plan over a table that fills as trials are made.

First some shapes get a few trials each, those that make the predictions for all others most certain. Then trials go
where most time is expected to be saved, by the weights of the shapes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tunewright.shapes.features import Features
from tunewright.shapes.joint_model import Choice, JointModel
from tunewright.shapes.selection import expected_gains, shapes_to_tune, trials_to_make
from tunewright.shapes.table import Floats, ShapeTable

EACH = 3
"""Trials of each of the first shapes: many shapes tell more than many trials of one."""

FIRST_SHAPES, FIRST_SHARE = 24, 0.5
"""How many shapes come first; if the number of trials is limited, the share of it that they get."""

BATCH = 2
"""Trials of one shape before the model is asked again."""

WORTH = 0.002
"""The search ends when no trial is expected to gain a larger share of its shape's time."""

Trials = tuple[int, list[int]]
"""A shape, and configs to try on it."""


class TrialPlan:
    """Decides which configs are tried next on which shape; `default` is tried on each of the first shapes."""

    def __init__(self, table: ShapeTable, default: int, *, trials: int | None = None, seed: int = 0) -> None:
        self._table, self._default, self._rng = table, default, np.random.default_rng(seed)
        self.seconds: Floats = table.seconds.copy()
        self._features = Features(len(table.names), table.configs)
        most = FIRST_SHAPES if trials is None else max(2, int(FIRST_SHARE * trials) // EACH)
        self._first = min(most, len(table.shapes))
        self._choice: Choice | None = None
        self._chosen_at = 0

    @property
    def table(self) -> ShapeTable:
        """All trials so far."""
        return replace(self._table, seconds=self.seconds.copy())

    @property
    def model(self) -> JointModel:
        """The model of all trials; its features are chosen anew when their number has doubled."""
        tried = int(np.isfinite(self.seconds).sum())
        if tried >= 2 * self._chosen_at:
            self._choice, self._chosen_at = None, tried
        model = JointModel(self.table, self._features, self._choice)
        self._choice = model.choice
        return model

    def next(self) -> Trials | None:
        """Returns the next trials; None if nothing is worth it. Tell their times in `seconds` before asking again."""
        tuned = self.table.tuned
        if len(tuned) < self._first and (shape := self._next_shape()) is not None:
            return shape, self._first_configs(shape)
        return self._next_trials() if tuned else None

    def _next_shape(self) -> int | None:
        untried = np.asarray(np.isnan(self.seconds).all(axis=1))
        table = self.table
        order = shapes_to_tune(table, 1, self._features, self.model if table.tuned else None)
        return next((shape for shape in order if untried[shape]), None)

    def _first_configs(self, shape: int) -> list[int]:
        """Returns the default, what is predicted to be fastest, and random ones."""
        predicted = [self.model.best(self._table.shapes[shape])] if self.table.tuned else []
        drawn = self._rng.permutation(len(self._table.configs)).tolist()
        return list(dict.fromkeys([self._default, *predicted, *drawn]))[:EACH]

    def _next_trials(self) -> Trials | None:
        """Returns the shape of which most is expected, with its best bets; None if nothing is worth it."""
        table, model = self.table, self.model
        if not (found := trials_to_make(table, 1, model)):
            return None
        shape, best = found[0]
        gains = expected_gains(table, model, shape)
        if table.works[shape].any() and np.exp(gains[best]) < WORTH:
            return None
        order = np.argsort(-gains)[:BATCH]
        return shape, [int(config) for config in order if np.isfinite(gains[config])]
