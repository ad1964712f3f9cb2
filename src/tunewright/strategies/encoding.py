"""Encoding of configs as feature vectors for surrogate models."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.spaces.config import VARIANT, Value
from tunewright.spaces.space import Space

Points = NDArray[np.float32]

MAX_PAIRS = 45
"""Pairs of knobs whose product is a column; knobs with the most values come first."""

BOUND_SAMPLES = 1024
"""Configs sampled to find the bounds of the space's features."""

MAX_VALUES, MAX_VALUE_COLUMNS = 40, 128
"""Values of a knob up to which each has a column, and columns of that kind; knobs with the fewest values come first."""

NEAR, FAR, VALUE = 1.0, 2.0, 4.2
"""Expected length scales of single knobs, of columns made of several, and of values of a knob."""

ABSENT = 0.5
"""Value of a knob that the variant lacks: the middle of its range."""


class Encoding:
    """Columns in 0..1 for every row of codes of a space.

    Each knob is encoded half by rank and half by magnitude. Hardware favors powers of two and their multiples, so
    these have columns of their own; so do products of two knobs (a tile's area, the threads of a block) and the
    features of the space. Last, each value of a knob has a column: good values need not be neighbors, as where every
    second power of two is good. The columns of one knob's values share a length scale: `owners` says which scale each
    column has. The first `plain` columns are all others.
    """

    def __init__(self, space: Space) -> None:
        indexed = [(i, _values_by_variant(space, name)) for i, name in enumerate(space.names)]
        self._columns: list[_Column] = []
        extra: list[_Column] = []
        self._uneven_columns: list[_Column] = []
        by_value: list[list[_Column]] = []
        for i, offered in indexed:
            values = sorted({value for values in offered.values() for value in values}, key=_sort_key)
            scale = _scale_of_range(space, space.names[i])
            self._columns += [_column(i, offered, values, numbers) for numbers in _positions(values, scale)]
            if scale is None and (numbers := _whole_numbers(values)) is not None:
                extra += [_column(i, offered, values, zeros) for zeros in _trailing_zeros(numbers)]
                self._uneven_columns += [_column(i, offered, values, uneven) for uneven in _unevenness(numbers)]
            if scale is None and _numbers(values) is not None and 3 <= len(values) <= MAX_VALUES:
                by_value.append([_column(i, offered, values, ones) for ones in np.eye(len(values))])
        self._knob_columns = len(self._columns)
        self._columns += extra + self._uneven_columns
        logs = sorted(
            (column for i, offered in indexed if (column := _log_column(i, offered)) is not None),
            key=lambda column: -len(column.positions),
        )
        self._pairs = list(combinations(logs, 2))[:MAX_PAIRS]
        self._space = space
        samples = np.empty((1, 0))
        if space.features:
            samples = space.feature_matrix(space.draw(np.random.default_rng(0), BOUND_SAMPLES))
        self._lower, self._upper = _bounds(np.sign(samples) * np.log1p(np.abs(samples)))
        self.plain = len(self._columns) + len(self._pairs) + len(space.features)
        by_value.sort(key=len)
        by_value = by_value[: int((np.cumsum([len(own) for own in by_value]) <= MAX_VALUE_COLUMNS).sum())]
        self._by_value, counts = [column for own in by_value for column in own], [len(own) for own in by_value]
        self.owners = np.r_[np.arange(self.plain), self.plain + np.repeat(np.arange(len(counts)), counts)].astype(int)

    def lengths(self, near: float = NEAR, far: float = FAR, value: float = VALUE) -> NDArray[np.float64]:
        """Returns the expected length scales: of single knobs, columns made of several, and values of each knob."""
        count = int(self.owners.max(initial=-1)) + 1
        counts = self._knob_columns, self.plain - self._knob_columns, count - self.plain
        return np.repeat([near, far, value], counts)

    def count_uneven(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Returns for each row how many knobs that allow a power of two have another value."""
        counts = np.zeros(len(rows))
        for column in self._uneven_columns:
            counts += column.encode(rows, rows[:, 0])
        return counts

    def points(self, rows: NDArray[Any]) -> Points:
        """Returns one point for each row of codes."""
        variants = rows[:, 0]
        points = np.empty((len(rows), len(self.owners)), dtype=np.float32)
        for j, column in enumerate(self._columns):
            points[:, j] = column.encode(rows, variants)
        for j, (first, second) in enumerate(self._pairs, len(self._columns)):
            points[:, j] = (
                first.encode(rows, variants) + second.encode(rows, variants) - first.lower - second.lower
            ) / (first.span + second.span)
        if self._space.features:
            features = self._space.feature_matrix(rows)
            logs = np.sign(features) * np.log1p(np.abs(features))
            scaled = np.clip((logs - self._lower) / np.maximum(self._upper - self._lower, 1e-9), 0.0, 1.0)
            points[:, self.plain - len(self._space.features) : self.plain] = np.where(np.isnan(scaled), ABSENT, scaled)
        for j, column in enumerate(self._by_value, self.plain):
            points[:, j] = column.encode(rows, variants)
        return points


def _bounds(samples: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the minimum and maximum of each column; zero where all are NaN."""
    filled = np.where(np.isnan(samples).all(0), 0.0, samples)
    return np.nanmin(filled, axis=0), np.nanmax(filled, axis=0)


class _Column:
    """One number for each value of one knob, looked up by code; variants may have different values under one name."""

    def __init__(self, index: int, offered: dict[int, tuple[Value, ...]], positions: dict[Value, float]) -> None:
        self.index, self.positions = index, positions
        numbers = list(positions.values())
        self.lower, self.span = min(numbers), max(max(numbers) - min(numbers), 1e-9)
        middle = self.lower + ABSENT * self.span
        # The last entry is for code -1: the knob is absent.
        self._tables = {
            v: np.array([*(positions[x] for x in values), middle], np.float32) for v, values in offered.items()
        }
        self._absent = middle

    def encode(self, rows: NDArray[Any], variants: NDArray[Any]) -> Points:
        """Returns the column for rows of codes."""
        codes = rows[:, self.index]
        if -1 in self._tables:
            return np.asarray(self._tables[-1][codes])
        column = np.full(len(rows), self._absent, dtype=np.float32)
        for variant, table in self._tables.items():
            mask = variants == variant
            column[mask] = table[codes[mask]]
        return column


def _values_by_variant(space: Space, name: str) -> dict[int, tuple[Value, ...]]:
    """Returns the values of the knob `name` by the index of the variant that has it; -1 for all variants."""
    if name == VARIANT:
        return {-1: tuple(variant.name for variant in space.variants)}
    if (shared := next((knob for knob in space.knobs if knob.name == name), None)) is not None:
        return {-1: shared.values}
    return {i: knob.values for i, variant in enumerate(space.variants) for knob in variant.knobs if knob.name == name}


def _sort_key(value: Value) -> tuple[int, float, str]:
    return (1, 0.0, value) if isinstance(value, str) else (0, float(value), "")


def _numbers(values: list[Value]) -> NDArray[np.float64] | None:
    """Returns the values as numbers; None if some are text."""
    if any(isinstance(value, str) for value in values):
        return None
    return np.array([float(value) for value in values])


def _column(
    index: int, offered: dict[int, tuple[Value, ...]], values: list[Value], numbers: NDArray[np.float64]
) -> _Column:
    return _Column(index, offered, dict(zip(values, numbers.tolist(), strict=True)))


def _scale_of_range(space: Space, name: str) -> str | None:
    """Returns the scale of the knob `name` if its values are a range."""
    knobs = [*space.knobs, *(knob for variant in space.variants for knob in variant.knobs)]
    return next((knob.range.scale for knob in knobs if knob.name == name and knob.range is not None), None)


def _positions(values: list[Value], scale: str | None) -> list[NDArray[np.float64]]:
    """Returns the columns of a knob: one, half rank and half magnitude; or one for each of several texts.

    A range has a column on its own scale.
    """
    count = len(values)
    if count < 2:
        return []
    numbers = _numbers(values)
    rank = np.arange(count) / (count - 1)
    if numbers is None and count > 2:
        return list(np.eye(count))
    if numbers is None or count == 2 or numbers.min() <= 0:
        return [rank]
    if scale == "linear":
        return [(numbers - numbers[0]) / (numbers[-1] - numbers[0])]
    logs = np.log2(numbers)
    if scale == "log":
        return [(logs - logs[0]) / (logs[-1] - logs[0])]
    return [0.5 * rank + 0.5 * (logs - logs[0]) / (logs[-1] - logs[0])]


def _whole_numbers(values: list[Value]) -> list[int] | None:
    """Returns the values if they are more than two, positive and whole; else None."""
    numbers = _numbers(values)
    if numbers is None or len(values) < 3 or numbers.min() <= 0 or numbers.max() >= 1 << 53:
        return None
    return [int(number) for number in numbers] if (numbers == np.round(numbers)).all() else None


def _trailing_zeros(numbers: list[int]) -> list[NDArray[np.float64]]:
    """Returns how often 2 divides each number, up to a warp's 32; nothing if that follows from the order."""
    zeros = np.array([min((number & -number).bit_length() - 1, 5) for number in numbers], dtype=float)
    if len(numbers) < 6 or len(set(zeros)) < 2 or abs(np.corrcoef(zeros, np.arange(len(numbers)))[0, 1]) > 0.9:
        return []
    return [(zeros - zeros.min()) / (zeros.max() - zeros.min())]


def _unevenness(numbers: list[int]) -> list[NDArray[np.float64]]:
    """Returns 1 for each number that is no power of two; nothing if all or none are."""
    uneven = np.array([float(number & (number - 1) != 0) for number in numbers])
    return [uneven] if 0 < uneven.sum() < len(numbers) else []


def _log_column(index: int, offered: dict[int, tuple[Value, ...]]) -> _Column | None:
    """Returns the logarithm of a knob's values; None if it has fewer than three or some are not positive."""
    values = sorted({value for values in offered.values() for value in values}, key=_sort_key)
    numbers = _numbers(values)
    if numbers is None or len(values) < 3 or numbers.min() <= 0:
        return None
    return _Column(index, offered, dict(zip(values, np.log2(numbers).tolist(), strict=True)))
