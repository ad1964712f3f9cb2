"""Encoding: configs as points between which distance means something, for whatever learns from trials."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.spaces.config import VARIANT, Value
from tunewright.spaces.space import Space

Points = NDArray[np.float32]

MOST_PAIRS = 45
"""Pairs of knobs whose product is a feature: knobs with the most values come first."""

SEEN = 1024
"""Configs whose figures say between which bounds they lie."""

ABSENT = 0.5
"""What a knob that a variant lacks looks like: the middle, as far from its smallest value as from its largest."""


class Encoding:
    """Columns in 0..1 for every row of codes of a space.

    Each knob is placed half by rank and half by magnitude. Hardware cares for powers of two and their multiples, so
    that these are features of their own; so are products of two knobs (a tile's area, the threads of a block) and
    the figures that the space comes with. The first `plain` columns are single knobs.
    """

    def __init__(self, space: Space) -> None:
        places = [(i, _offered(space, name)) for i, name in enumerate(space.names)]
        self._columns: list[_Column] = []
        extra: list[_Column] = []
        self._uneven: list[_Column] = []
        for i, offered in places:
            values = sorted({value for some in offered.values() for value in some}, key=_order)
            self._columns += [_column(i, offered, values, numbers) for numbers in _places(values)]
            if (numbers := _whole_numbers(values)) is not None:
                extra += [_column(i, offered, values, zeros) for zeros in _trailing_zeros(numbers)]
                self._uneven += [_column(i, offered, values, uneven) for uneven in _unevenness(numbers)]
        self.plain = len(self._columns)
        self._columns += extra + self._uneven
        logs = sorted(
            (column for i, offered in places if (column := _log_column(i, offered)) is not None),
            key=lambda column: -len(column.places),
        )
        self._pairs = list(combinations(logs, 2))[:MOST_PAIRS]
        self._space = space
        seen = space.figured(space.draw(np.random.default_rng(0), SEEN)) if space.figures else np.empty((1, 0))
        self._least, self._most = _bounds(np.sign(seen) * np.log1p(np.abs(seen)))
        self.width = len(self._columns) + len(self._pairs) + len(space.figures)

    def uneven(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """How many knobs of each row are set to something other than a power of two, where they could be."""
        found = np.zeros(len(rows))
        for column in self._uneven:
            found += column.of(rows, rows[:, 0])
        return found

    def points(self, rows: NDArray[Any]) -> Points:
        """The points of rows of codes."""
        variants = rows[:, 0]
        found = np.empty((len(rows), self.width), dtype=np.float32)
        for j, column in enumerate(self._columns):
            found[:, j] = column.of(rows, variants)
        for j, (one, other) in enumerate(self._pairs, len(self._columns)):
            found[:, j] = (one.of(rows, variants) + other.of(rows, variants) - one.least - other.least) / (
                one.span + other.span
            )
        if self._space.figures:
            figures = self._space.figured(rows)
            logs = np.sign(figures) * np.log1p(np.abs(figures))
            placed = np.clip((logs - self._least) / np.maximum(self._most - self._least, 1e-9), 0.0, 1.0)
            found[:, -len(self._space.figures) :] = np.where(np.isnan(placed), ABSENT, placed)
        return found


def _bounds(seen: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least and the most of each column, where it has any number."""
    some = np.where(np.isnan(seen).all(0), 0.0, seen)
    return np.nanmin(some, axis=0), np.nanmax(some, axis=0)


class _Column:
    """One number for each value of one knob, looked up by code; variants may offer other values under one name."""

    def __init__(self, index: int, offered: dict[int, tuple[Value, ...]], places: dict[Value, float]) -> None:
        self.index, self.places = index, places
        numbers = list(places.values())
        self.least, self.span = min(numbers), max(max(numbers) - min(numbers), 1e-9)
        middle = self.least + ABSENT * self.span
        # The last entry answers code -1: the knob is absent.
        self._tables = {
            v: np.array([*(places[x] for x in values), middle], np.float32) for v, values in offered.items()
        }
        self._absent = middle

    def of(self, rows: NDArray[Any], variants: NDArray[Any]) -> Points:
        """The column for rows of codes."""
        codes = rows[:, self.index]
        if -1 in self._tables:
            return np.asarray(self._tables[-1][codes])
        found = np.full(len(rows), self._absent, dtype=np.float32)
        for variant, table in self._tables.items():
            mine = variants == variant
            found[mine] = table[codes[mine]]
        return found


def _offered(space: Space, name: str) -> dict[int, tuple[Value, ...]]:
    """The values under `name`, by the number of the variant that offers them; -1 where all do."""
    if name == VARIANT:
        return {-1: tuple(variant.name for variant in space.variants)}
    if (shared := next((knob for knob in space.knobs if knob.name == name), None)) is not None:
        return {-1: shared.values}
    return {i: knob.values for i, variant in enumerate(space.variants) for knob in variant.knobs if knob.name == name}


def _order(value: Value) -> tuple[int, float, str]:
    return (1, 0.0, value) if isinstance(value, str) else (0, float(value), "")


def _numbers(values: list[Value]) -> NDArray[np.float64] | None:
    """The values as numbers, if they are numbers."""
    if any(isinstance(value, str) for value in values):
        return None
    return np.array([float(value) for value in values])


def _column(
    index: int, offered: dict[int, tuple[Value, ...]], values: list[Value], numbers: NDArray[np.float64]
) -> _Column:
    return _Column(index, offered, dict(zip(values, numbers.tolist(), strict=True)))


def _places(values: list[Value]) -> list[NDArray[np.float64]]:
    """Where each value of a knob stands: half by rank, half by magnitude; words that have no order stand apart."""
    count = len(values)
    if count < 2:
        return []
    numbers = _numbers(values)
    rank = np.arange(count) / (count - 1)
    if numbers is None and count > 2:
        return list(np.eye(count))
    if numbers is None or count == 2 or numbers.min() <= 0:
        return [rank]
    logs = np.log2(numbers)
    return [0.5 * rank + 0.5 * (logs - logs[0]) / (logs[-1] - logs[0])]


def _whole_numbers(values: list[Value]) -> list[int] | None:
    """The values as whole positive numbers, if they are and there are more than two."""
    numbers = _numbers(values)
    if numbers is None or len(values) < 3 or numbers.min() <= 0 or numbers.max() >= 1 << 53:
        return None
    return [int(number) for number in numbers] if (numbers == np.round(numbers)).all() else None


def _trailing_zeros(numbers: list[int]) -> list[NDArray[np.float64]]:
    """How often 2 divides each number, up to a warp's 32, where that says something that the order does not."""
    zeros = np.array([min((number & -number).bit_length() - 1, 5) for number in numbers], dtype=float)
    if len(numbers) < 6 or len(set(zeros)) < 2 or abs(np.corrcoef(zeros, np.arange(len(numbers)))[0, 1]) > 0.9:
        return []
    return [(zeros - zeros.min()) / (zeros.max() - zeros.min())]


def _unevenness(numbers: list[int]) -> list[NDArray[np.float64]]:
    """1 for what is no power of two, where some are and some are not."""
    uneven = np.array([float(number & (number - 1) != 0) for number in numbers])
    return [uneven] if 0 < uneven.sum() < len(numbers) else []


def _log_column(index: int, offered: dict[int, tuple[Value, ...]]) -> _Column | None:
    """The logarithm of a knob's value, where it has one worth adding to another's."""
    values = sorted({value for some in offered.values() for value in some}, key=_order)
    numbers = _numbers(values)
    if numbers is None or len(values) < 3 or numbers.min() <= 0:
        return None
    return _Column(index, offered, dict(zip(values, np.log2(numbers).tolist(), strict=True)))
