"""A model of time over shape and config together, so that a trial at one shape informs all others.

The logarithm of a config's time, relative to the mean over the configs of its shape, is a sum over features with a
ridge penalty. Which tiles divide which sizes is found from the trials: a group of features is added as long as shapes
that are left out are predicted better with it. So is the penalty chosen. Nothing but trials is used for either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from tunewright.errors import SettingsError
from tunewright.shapes.features import Features
from tunewright.shapes.table import Floats, ShapeTable

PENALTIES = (0.3, 1.0, 3.0, 10.0)
FIRST_PENALTY = 1.0

MIN_SHAPES = 4
"""With fewer tuned shapes, leaving one out says nothing: all groups are kept."""

MAX_FOLDS = 8
"""Beyond so many shapes, several are left out at once."""

MAX_GROUPS = 6
WORTH = 0.97
"""A group is added only if the error of shapes left out falls below this share."""


@dataclass(frozen=True)
class ShapeSums:
    """What a shape adds to the normal equations: products of its centered features and times."""

    gram: Floats
    moment: Floats
    square: float
    count: int

    def __add__(self, other: ShapeSums) -> ShapeSums:
        square, count = self.square + other.square, self.count + other.count
        return ShapeSums(self.gram + other.gram, self.moment + other.moment, square, count)


@dataclass(frozen=True)
class Choice:
    """The groups and the penalty that predict shapes left out best, with the error that remains."""

    groups: tuple[int, ...]
    penalty: float
    error: float


class JointModel:
    """Predicts the times of all configs on any shape, up to a factor of the shape."""

    def __init__(self, table: ShapeTable, features: Features | None = None, choice: Choice | None = None) -> None:
        """Takes a choice that was made for nearly the same trials, if there is one: making it is most of the work."""
        if not table.tuned:
            raise SettingsError("the model needs a shape of which two configs were timed; tune some shapes first")
        self.table = table
        self.features = features or Features(len(table.names), table.configs)
        sums = [_sums_of(self.features, table, shape) for shape in table.tuned]
        self.choice = choice or _choose(sums, self.features)
        self._columns = self.features.columns(self.choice.groups)
        total = reduce(add, sums)
        kept = np.ix_(self._columns, self._columns)
        system = total.gram[kept] + self.choice.penalty * np.eye(len(self._columns))
        self.covariance: Floats = np.linalg.inv(system).astype(np.float64, copy=False)
        self._weights = self.covariance @ total.moment[self._columns]
        self._noise = max(self.choice.error, 1e-6)

    @property
    def tiles(self) -> list[tuple[str, tuple[str, ...]]]:
        """Which sizes are divided by which knobs, as found from the trials: `("M", ("MR",))`."""
        groups = [self.features.groups[i] for i in self.choice.groups]
        return [(self.table.names[group.size], group.knobs) for group in groups]

    def centered(self, sizes: Sequence[int]) -> Floats:
        """Returns the features that the model uses, relative to their mean over the configs of a shape."""
        return center(self.features.of(np.array(sizes, dtype=np.float64))[:, self._columns])

    def predict(self, sizes: Sequence[int]) -> Floats:
        """Returns the logarithm of the time of each config, relative to the mean over all configs."""
        return self.centered(sizes) @ self._weights

    def variance(self, sizes: Sequence[int]) -> Floats:
        """Returns how uncertain each prediction is, as a variance."""
        rows = self.centered(sizes)
        return self._noise * np.asarray(np.einsum("ij,jk,ik->i", rows, self.covariance, rows))

    def best(self, sizes: Sequence[int]) -> int:
        """Returns the config that is predicted to be the fastest."""
        return int(self.predict(sizes).argmin())


def center(rows: Floats) -> Floats:
    """Returns rows relative to their mean: what all configs of a shape share is no part of the model."""
    return np.asarray(rows - rows.mean(axis=0))


def _sums_of(features: Features, table: ShapeTable, shape: int) -> ShapeSums:
    tried = table.works[shape]
    rows = center(features.of(table.sizes[shape])[tried])
    times = np.log(table.seconds[shape, tried])
    times = times - times.mean()
    return ShapeSums(rows.T @ rows, rows.T @ times, float(times @ times), int(tried.sum()))


def _choose(sums: Sequence[ShapeSums], features: Features) -> Choice:
    """Returns the groups that help to predict shapes left out, added one by one, and the penalty that helps most."""
    everything = tuple(range(len(features.groups)))
    if len(sums) < MIN_SHAPES:
        return Choice(everything, FIRST_PENALTY, 0.01)
    sums = [reduce(add, sums[i::MAX_FOLDS]) for i in range(min(MAX_FOLDS, len(sums)))]
    chosen: tuple[int, ...] = ()
    least = _error(sums, features.columns(()), FIRST_PENALTY)
    while len(chosen) < MAX_GROUPS:
        left = [group for group in everything if group not in chosen]
        errors = {group: _error(sums, features.columns((*chosen, group)), FIRST_PENALTY) for group in left}
        group = min(errors, key=errors.__getitem__, default=None)
        if group is None or errors[group] > WORTH * least:
            break
        chosen, least = (*chosen, group), errors[group]
    found = [Choice(chosen, penalty, _error(sums, features.columns(chosen), penalty)) for penalty in PENALTIES]
    return min(found, key=lambda choice: choice.error)


def _error(sums: Sequence[ShapeSums], columns: Sequence[int], penalty: float) -> float:
    """Returns the mean squared error of shapes, each predicted from the others."""
    kept = np.ix_(columns, columns)
    grams = [part.gram[kept] for part in sums]
    moments = [part.moment[list(columns)] for part in sums]
    gram = np.sum(grams, axis=0) + penalty * np.eye(len(columns))
    moment = np.sum(moments, axis=0)
    errors = []
    for part, own, its in zip(sums, grams, moments, strict=True):
        weights = np.linalg.solve(gram - own, moment - its)
        errors.append((part.square - 2 * weights @ its + weights @ own @ weights) / part.count)
    return float(np.mean(errors))
