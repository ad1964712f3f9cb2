"""Costs: the time of a config on a shape as a sum of work, such as padded rows times columns, each at a price.

A price may hold for all configs, or for those with one value of a knob. Errors are relative, so slow configs count as
much as fast ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunewright.shapes.features import Features
from tunewright.shapes.local_mean import LocalMean
from tunewright.shapes.prices import TINY, PricedTrials, Prices
from tunewright.shapes.table import Floats, Indices, ShapeTable
from tunewright.shapes.work import Work

MAX_FOLDS = 8
"""How many models there are, each fitted without some shapes, which say how wrong it is."""

MAX_TRIALS = 2400
"""Trials that prices are found from; of more, some that are drawn at random."""

LEAST = 0.01
"""No config is predicted to take less than this share of the mean."""


class CostModels:
    """The mean of models, each without some of the shapes; `error` is the mean squared one of models on those."""

    def __init__(self, table: ShapeTable, features: Features, tiles: Sequence[Sequence[tuple[str, ...]]]) -> None:
        self._work = Work(features, tiles)
        self._levels = np.concatenate([np.ones((len(features.levels), 1)), features.levels], axis=1).T
        trials, folds = table.sample(MAX_TRIALS, table.tuned), min(MAX_FOLDS, len(table.tuned))
        priced = PricedTrials(self._done_by(table, trials), self._levels[:, np.concatenate(trials)])
        fold = np.repeat(np.arange(len(trials)) % folds, [len(configs) for configs in trials])
        self._models = [priced.fit(fold != number) for number in range(folds)]
        errors = np.array([self._error(table, i, self._models[n % folds]) for n, i in enumerate(table.tuned)])
        self._table, self.error = table, float(errors.mean())
        self._errors = LocalMean(table.sizes[table.tuned], errors, table.works[table.tuned].sum(axis=1) - 1)

    def _done_by(self, table: ShapeTable, trials: Sequence[Indices]) -> Floats:
        """Returns the work of the trials of each shape by the second that they took."""
        rows = zip(table.tuned, trials, strict=True)
        return np.concatenate(
            [self._work.of(table.sizes[i], self._work.products, own) / table.seconds[i, own] for i, own in rows], axis=1
        )

    def _error(self, table: ShapeTable, shape: int, model: Prices) -> float:
        works = table.works[shape]
        return float(np.var(np.log(table.seconds[shape, works]) - self._logarithms(model, table.sizes[shape])[works]))

    def predict(self, sizes: Sequence[int]) -> Floats:
        """Returns the logarithm of the time of each config, relative to the mean over all configs."""
        known = np.array(sizes, dtype=np.float64)
        return np.asarray(np.mean([self._logarithms(model, known) for model in self._models], axis=0))

    def foresee(self, shape: int) -> tuple[Floats, Floats]:
        """Returns the logarithm of the time of each config on a shape with trials, and its variance."""
        logs, trials = self._table.leveled(shape, self.predict(self._table.shapes[shape]))
        return logs, np.full_like(logs, self._errors.at(self._table.sizes[shape]) * (1 + 1 / trials))

    def _logarithms(self, model: Prices, sizes: Floats) -> Floats:
        """Returns the same by one model."""
        done = self._work.of(sizes, self._work.products[model.products]) * self._levels[model.levels]
        seconds = model.prices @ done
        found = np.log(np.maximum(seconds, max(LEAST * float(seconds.mean()), TINY)))
        return np.asarray(found - found.mean())
