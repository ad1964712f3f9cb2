"""A rule that allows only the configs in a list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.spaces.config import Value
from tunewright.spaces.rule import Knob, Rule

MAX_ROW_NUMBER = 1 << 62


def rule_from_rows(knobs: Sequence[Knob], rows: Iterable[Mapping[str, Value]], reason: str) -> Rule:
    """Returns a rule that only the settings in `rows` satisfy."""
    table = _RowTable(knobs, rows)
    return Rule(reason, table, table.contains_rows)


class _RowTable:
    """Membership test for settings. The knob names come from data, so the signature is built instead of compiled."""

    def __init__(self, knobs: Sequence[Knob], rows: Iterable[Mapping[str, Value]]) -> None:
        self._knobs = tuple(knobs)
        self._rows = {tuple(row[knob.name] for knob in knobs) for row in rows}
        self.__signature__ = Signature([Parameter(k.name, Parameter.POSITIONAL_OR_KEYWORD) for k in knobs])
        self._numbers: NDArray[np.int64] | None = None

    def __call__(self, *values: Value) -> bool:
        return values in self._rows

    def contains_rows(self, *columns: NDArray[Any]) -> Any:
        """The same test for whole columns: each row becomes a number that is looked up in the sorted table."""
        if prod(len(knob) for knob in self._knobs) >= MAX_ROW_NUMBER or not self._rows:
            raise OverflowError("too many combinations to be numbered")
        if self._numbers is None:
            table = [np.array(column) for column in zip(*self._rows, strict=True)]
            self._numbers = np.unique(self._number(table))
        number = self._number(columns)
        position = np.minimum(np.searchsorted(self._numbers, number), len(self._numbers) - 1)
        return self._numbers[position] == number

    def _number(self, columns: Sequence[NDArray[Any]]) -> Any:
        number: Any = np.int64(0)
        for knob, column in zip(self._knobs, columns, strict=True):
            number = number * len(knob) + np.searchsorted(np.sort(knob.column), column)
        return number
