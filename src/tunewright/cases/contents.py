"""Contents: new values for the inputs of a call, so that no launch can reuse what it computed for an earlier one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.cases.inputs import MAX_INTEGER, MIN_INTEGER, is_number, random_values
from tunewright.model.signature import Parameter

CHANGED_ELEMENTS = (1, 32, 1, 4)
"""How many elements of each array a draw changes: few, so that it takes microseconds and leaves caches as they are, and
often only one, so that a kernel which compares samples of its inputs with earlier ones does not see it."""

FEW_VALUES_ELEMENTS = 8
"""How many elements change at least if only arrays with few values do, as of bools: one would give few contents."""

OUTLIER = 6.0
"""One of the changed floats is up to twice as large: beyond the others, so that a maximum changes, too."""

POOL = 4096
"""Values to choose new elements from."""


class Contents:
    """The contents of a call's arrays. `draw(0)` is as they were made; other draws change a few elements.

    What the user's own function makes is `structured`: sorted, normalized or indices. It does not change, and neither
    do constant inputs. Equal numbers give equal contents in every process. `attach` comes before `draw`.
    """

    def __init__(self, parameters: Sequence[Parameter], arrays: Sequence[Any], seed: int, *, structured: bool) -> None:
        self._seed, self._arrays, self.number = seed, arrays, 0
        self._changed: list[tuple[int, NDArray[Any], NDArray[Any]]] = []
        self._flat: dict[int, tuple[Any, Any]] = {}
        self._places = [] if structured else [i for i, p in enumerate(parameters) if _may_change(p, arrays[i])]
        rng = np.random.default_rng(seed)
        self._pools = {i: random_values(rng, (POOL,), arrays[i].dtype) for i in self._places}
        has_many_values = any(_has_many_values(arrays[i].dtype) for i in self._places)
        self._min_count = 1 if has_many_values else FEW_VALUES_ELEMENTS

    def freeze(self) -> None:
        """Makes all draws alike."""
        self._places = []

    @property
    def can_change(self) -> bool:
        """Whether draws differ at all."""
        return bool(self._places)

    def attach(self, copies: Sequence[Any]) -> None:
        """Makes copies of the arrays change with them."""
        self._flat = {i: _flatten(self._arrays[i], copies[i]) for i in self._places}

    def draw(self, number: int) -> None:
        """Changes the arrays to the contents with this number."""
        self.number = number
        for i, where, before in self._changed:
            for array in self._flat[i]:
                array[where] = before
        self._changed = []
        for i, where, values in self._new_elements(number) if number else ():
            self._changed.append((i, where, self._flat[i][0][where]))
            for array in self._flat[i]:
                array[where] = values

    def _new_elements(self, number: int) -> Iterator[tuple[int, NDArray[Any], NDArray[Any]]]:
        """Yields an array's place, places in the flat array, and new values for them like those of a recipe."""
        random = Random(self._seed << 32 ^ number)
        count = max(random.choice(CHANGED_ELEMENTS), self._min_count)
        chosen = np.frombuffer(random.randbytes(8 * count * len(self._places)), np.uint32).reshape(-1, 2, count)
        for i, (where, which) in zip(self._places, chosen, strict=True):
            values = self._pools[i][which % POOL]
            values[0] = _outlier(values.dtype, int(which[0]))
            yield i, where % self._arrays[i].size, values


def _flatten(array: NDArray[Any], copy: NDArray[Any]) -> tuple[Any, Any]:
    """Returns both arrays as one-dimensional views in the same order; contiguous ones are faster to change."""
    if array.flags.c_contiguous and copy.flags.c_contiguous:
        return array.reshape(-1), copy.reshape(-1)
    if array.flags.f_contiguous and copy.flags.f_contiguous:
        return array.T.reshape(-1), copy.T.reshape(-1)
    return array.flat, copy.flat


def _may_change(parameter: Parameter, array: Any) -> bool:
    if not isinstance(array, np.ndarray) or not array.size or array.dtype.hasobject:
        return False
    role = parameter.role
    if role is not None and (role.constant or not role.reads):
        return False
    return is_number(array.dtype)


def _has_many_values(dtype: np.dtype[Any]) -> bool:
    return dtype.kind not in "iub" and dtype.itemsize > 1


def _outlier(dtype: np.dtype[Any], number: int) -> Any:
    """Returns a value beyond the usual ones by a number of 32 bits; for integers and bools, one of the two extremes."""
    if dtype.kind in "iub":
        return MAX_INTEGER if number % 2 == 0 else MIN_INTEGER if dtype.kind == "i" else 0
    return (1 - 2 * (number % 2)) * OUTLIER * (1 + number / (1 << 32))
