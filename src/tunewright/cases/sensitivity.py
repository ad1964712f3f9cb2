"""Sensitivity: how far results move when inputs change a little.

A result near zero may be the difference of large terms, and its rounding error is relative to them, not to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.cases.inputs import NARROW_FLOATS
from tunewright.errors import BackendError

CHANGES = 3
"""How often inputs are changed: by chance, the changes of some may cancel each other."""

NUMBERS = np.ndarray | np.generic | float | int | complex
"""What is compared as numbers."""

Nudge = Callable[[Any], Any]
"""Returns an array of floats with small relative changes; other values as they are."""


def sensitivities(compute: Callable[[Nudge], Sequence[Any]], results: Sequence[Any]) -> list[Any]:
    """Returns how far each result moves, divided by the relative change of the inputs; 0 where that is not known."""
    moved = [np.zeros(np.shape(result) if isinstance(result, NUMBERS) else ()) for result in results]
    for number in range(CHANGES):
        nudge = _Nudge(number)
        try:
            others = compute(nudge)
        except BackendError:  # a reference may refuse inputs that are not quite as they should be
            break
        for i, (result, other) in enumerate(zip(results, others, strict=True)):
            if isinstance(result, NUMBERS):
                moved[i] = np.maximum(moved[i], _distance(result, other) / nudge.largest)
    return moved


def is_float_array(value: Any) -> bool:
    """Whether a value is an array of real or complex floats that numpy can compute with."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "fc" and value.dtype.name not in NARROW_FLOATS


class _Nudge:
    def __init__(self, number: int) -> None:
        self._random = np.random.default_rng(number)
        self.largest = float(np.finfo(np.float64).eps) ** 0.5

    def __call__(self, value: Any) -> Any:
        if not is_float_array(value):
            return value
        change = float(np.finfo(value.dtype).eps) ** 0.5
        self.largest = max(self.largest, change)
        signs: NDArray[Any] = 2 * self._random.integers(0, 2, value.shape, np.int8) - 1
        return (value * (1 + change * signs)).astype(value.dtype)


def _distance(result: Any, other: Any) -> Any:
    one, two = np.asarray(result), np.asarray(other)
    if one.shape != two.shape or one.dtype.kind not in "fc":
        return np.zeros(one.shape)
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.abs(one - two), nan=0.0, posinf=0.0)
