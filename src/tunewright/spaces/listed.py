"""Listed: a rule that holds for the settings in a list alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.spaces.config import Value
from tunewright.spaces.rule import Knob, Rule

MOST_NUMBERED = 1 << 62


def listed(knobs: Sequence[Knob], rows: Iterable[Mapping[str, Value]], reason: str) -> Rule:
    """A rule that every setting of `knobs` breaks but those in `rows`."""
    members = _Members(knobs, rows)
    return Rule(reason, members, members.wide)


class _Members:
    """Whether values are in a table; the names of their knobs come from data, so a signature is made, no code."""

    def __init__(self, knobs: Sequence[Knob], rows: Iterable[Mapping[str, Value]]) -> None:
        self._knobs = tuple(knobs)
        self._rows = {tuple(row[knob.name] for knob in knobs) for row in rows}
        self.__signature__ = Signature([Parameter(k.name, Parameter.POSITIONAL_OR_KEYWORD) for k in knobs])
        self._numbers: NDArray[np.int64] | None = None

    def __call__(self, *values: Value) -> bool:
        return values in self._rows

    def wide(self, *columns: NDArray[Any]) -> Any:
        """The same for whole columns: each row is a number, looked up among those of the table."""
        if prod(len(knob) for knob in self._knobs) >= MOST_NUMBERED or not self._rows:
            raise OverflowError("too many combinations to be numbered")
        if self._numbers is None:
            table = [np.array(column) for column in zip(*self._rows, strict=True)]
            self._numbers = np.unique(self._number(table))
        number = self._number(columns)
        found = np.minimum(np.searchsorted(self._numbers, number), len(self._numbers) - 1)
        return self._numbers[found] == number

    def _number(self, columns: Sequence[NDArray[Any]]) -> Any:
        number: Any = np.int64(0)
        for knob, column in zip(self._knobs, columns, strict=True):
            number = number * len(knob) + np.searchsorted(np.sort(knob.column), column)
        return number
