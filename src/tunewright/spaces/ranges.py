"""Ranges: the values of a knob that has too many to list."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isfinite, log10
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SpaceError

SCALES = ("linear", "log")

FLOAT_VALUES = 1001
"""The number of values of a float range without a step."""

MAX_VALUES = 1 << 16
"""The largest number of values of a range."""

DIGITS = 15
"""Significant digits of a float in a range, so that it reads as 0.3 and not as 0.30000000000000004."""


class Range(Sequence[float]):
    """The values from `low` to `high`, both included: a knob with a range is searched, and its values are not listed.

    Two integers make a range of integers, each `step` apart (1 if not given). Floats without a step make a range of
    1,001 values. On the scale "log" the search draws 1 to 10 as often as 10 to 100, and takes larger steps at larger
    values; floats without a step are then spaced by a constant ratio.

    Example: `Knob("block", Range(1, 4096, scale="log"))`
    """

    def __init__(self, low: float, high: float, *, step: float | None = None, scale: str = "linear") -> None:
        low, high, step = _number("low", low), _number("high", high), None if step is None else _number("step", step)
        if scale not in SCALES:
            raise SpaceError(f'the scale of a range is "linear" or "log", not {scale!r}')
        if low > high:
            raise SpaceError(f"a range goes from its smallest value to its largest, not from {low} to {high}")
        if step is not None and step <= 0:
            raise SpaceError(f"the step of a range is larger than 0, not {step}")
        if scale == "log" and low <= 0:
            raise SpaceError(f"a range on a log scale begins above 0, not at {low}")
        whole = all(isinstance(number, int) for number in (low, high, step if step is not None else 1))
        self.low, self.high, self.scale = (low, high, scale) if whole else (float(low), float(high), scale)
        self.step: float | None = 1 if whole and step is None else step
        self._count = _count(low, high, self.step)
        if self._count > MAX_VALUES:
            raise SpaceError(f"a range of {self._count:,} values is too fine to search; give it a larger step=")
        self._whole = whole

    def __repr__(self) -> str:
        step = "" if self.step in (None, 1) else f", step={self.step!r}"
        scale = "" if self.scale == "linear" else f", scale={self.scale!r}"
        return f"Range({self.low!r}, {self.high!r}{step}{scale})"

    def __str__(self) -> str:
        step = "" if self.step in (None, 1) else f" in steps of {self.step}"
        return f"{self.low} to {self.high}{step}{', log scale' if self.scale == 'log' else ''}"

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> float: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[float]: ...
    def __getitem__(self, place: int | slice) -> float | Sequence[float]:
        """Returns the value at a place, which is computed."""
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(f"the range has {len(self):,} values")
        place %= len(self)
        if self.step is not None:
            exact = self.low + place * self.step
            return exact if self._whole else self._readable(exact)
        if place == len(self) - 1:
            return self.high
        share = place / (len(self) - 1)
        if self.scale == "log":
            return float(f"{self.low * (self.high / self.low) ** share:.{DIGITS}g}")
        return self._readable(self.low + share * (self.high - self.low))

    def _readable(self, number: float) -> float:
        """Returns a float without the last digits, which are rounding errors; relative to the largest of the range."""
        return round(number, DIGITS - 1 - floor(log10(max(abs(self.low), abs(self.high)))))

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[Any]:
        """Returns random places in the range, with replacement: uniform on its scale."""
        if self.scale == "linear" or self.step is None:
            return rng.integers(len(self), size=count)
        values = np.exp(rng.uniform(np.log(self.low), np.log(self.low + len(self) * self.step), size=count))
        return np.clip((values - self.low) / self.step, 0, len(self) - 1).astype(np.int64)

    def around(self, place: int) -> list[int]:
        """Returns other places at growing distances from one, so that few of them reach the ends of the range."""
        distances, distance = [], 1
        while distance < len(self):
            distances += [distance, distance + distance // 2] if distance > 1 else [distance]
            distance *= 2
        near = {place + sign * distance for distance in distances for sign in (-1, 1)}
        return sorted(other for other in near if 0 <= other < len(self))

    def strides(self, places: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        """Returns a random step for a move from each place: often short, seldom a quarter of the way."""
        far = np.full(len(places), len(self) / 4)
        if self.scale == "log" and self.step is not None:
            far = np.minimum(far, places + self.low / self.step)
        return np.maximum(1, far ** rng.random(len(places))).astype(np.int64)


def _number(what: str, number: Any) -> float:
    """Returns a Python number; raises SpaceError if it is none."""
    value = number.item() if hasattr(number, "item") else number
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise SpaceError(f"{what} of a range is a number, not {number!r}")
    return value


def _count(low: float, high: float, step: float | None) -> int:
    if low == high:
        return 1
    return FLOAT_VALUES if step is None else floor((high - low) / step + 1e-9) + 1
