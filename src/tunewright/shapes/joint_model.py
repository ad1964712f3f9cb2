"""A model of time over shape and config together, so that a trial at one shape informs all others.

The logarithm of a config's time, relative to the mean over the configs of its shape, is a sum over features with a
ridge penalty. Which tiles divide which sizes is found from the trials: a group of features is added as long as shapes
that are left out are predicted better with it. So is the penalty chosen, and how far what is left over reaches from
shape to shape. Nothing but trials is used for any of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from tunewright.errors import SettingsError
from tunewright.shapes.features import Features
from tunewright.shapes.residuals import Reach, Residuals, choose_reach
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
    reach: Reach | None = None


class JointModel:
    """Predicts the times of all configs on any shape, up to a factor of the shape."""

    def __init__(self, table: ShapeTable, features: Features | None = None, choice: Choice | None = None) -> None:
        """Takes a choice that was made for nearly the same trials, if there is one: making it is most of the work."""
        if not table.tuned:
            raise SettingsError("the model needs a shape of which two configs were timed; tune some shapes first")
        self.table = table
        self.features = features or Features(len(table.names), table.configs)
        sums = [_sums_of(self.features, table, shape) for shape in table.tuned]
        self.choice = choice or _with_reach(_choose(sums, self.features), table, self.features, sums)
        self._columns = self.features.columns(self.choice.groups)
        total = reduce(add, sums)
        kept = np.ix_(self._columns, self._columns)
        system = total.gram[kept] + self.choice.penalty * np.eye(len(self._columns))
        self.covariance: Floats = np.linalg.inv(system).astype(np.float64, copy=False)
        self._weights = self.covariance @ total.moment[self._columns]
        self._noise = max(self.choice.error, 1e-6)
        self._residuals: Residuals | None = None
        if self.choice.reach is not None:
            left = residuals_of(table, self.features, self._columns, self._weights[:, None])[0]
            self._residuals = Residuals(table.sizes[table.tuned], left, self.choice.reach)

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
        predicted = self.centered(sizes) @ self._weights
        return predicted if self._residuals is None else predicted + self._residuals.predict(sizes)

    def variance(self, sizes: Sequence[int]) -> Floats:
        """Returns how uncertain each prediction is, as a variance."""
        rows = self.centered(sizes)
        return self._noise * np.asarray(((rows @ self.covariance) * rows).sum(axis=1))

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
    kept, errors = np.ix_(columns, columns), []
    for part, weights in zip(sums, _weights_without(sums, columns, penalty), strict=True):
        own, its = part.gram[kept], part.moment[list(columns)]
        errors.append((part.square - 2 * weights @ its + weights @ own @ weights) / part.count)
    return float(np.mean(errors))


def _weights_without(sums: Sequence[ShapeSums], columns: Sequence[int], penalty: float) -> list[Floats]:
    """Returns the weights that follow from all others, for each part."""
    kept = np.ix_(columns, columns)
    grams = [part.gram[kept] for part in sums]
    moments = [part.moment[list(columns)] for part in sums]
    gram = np.sum(grams, axis=0) + penalty * np.eye(len(columns))
    moment = np.sum(moments, axis=0)
    return [np.linalg.solve(gram - own, moment - its) for own, its in zip(grams, moments, strict=True)]


def _with_reach(choice: Choice, table: ShapeTable, features: Features, sums: Sequence[ShapeSums]) -> Choice:
    """Returns the choice with the reach of residuals that helps to predict shapes left out, if one does."""
    if len(sums) < MIN_SHAPES:
        return choice
    count = min(MAX_FOLDS, len(sums))
    columns = features.columns(choice.groups)
    weights = _weights_without([reduce(add, sums[i::MAX_FOLDS]) for i in range(count)], columns, choice.penalty)
    left = residuals_of(table, features, columns, np.stack(weights, axis=1))
    folds = [(range(i, len(sums), MAX_FOLDS), left[i]) for i in range(count)]
    reach, error = choose_reach(table.sizes[table.tuned], folds, choice.error)
    return replace(choice, reach=reach, error=error)


def residuals_of(table: ShapeTable, features: Features, columns: Sequence[int], weights: Floats) -> Floats:
    """Returns what each set of weights (a column each) leaves over: by set, tuned shape and config."""
    found = np.full((weights.shape[1], len(table.tuned), len(table.configs)), np.nan)
    for number, shape in enumerate(table.tuned):
        tried = table.works[shape]
        rows = center(features.of(table.sizes[shape])[tried][:, list(columns)])
        times = np.log(table.seconds[shape, tried])
        found[:, number, tried] = (times - times.mean())[None, :] - (rows @ weights).T
    return found
