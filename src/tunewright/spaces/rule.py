"""Knob: what can be turned. Rule: a promise between knobs, with the reason a user reads when it is broken."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SpaceError
from tunewright.spaces.config import VARIANT, Value, plain

Mask = NDArray[np.bool_]

CHECKED_ROWS = 32
"""How many rows of each whole-column answer are compared with the plain one."""

_REFUSALS = (TypeError, ValueError, ArithmeticError, AttributeError, LookupError, NotImplementedError)


class Knob:
    """One thing a kernel lets us turn; its values are ordered, usually from small to large.

    `numerics` are those of its values that change the numbers a kernel computes (fast-math, TF32, flush-to-zero):
    they are left out unless the user allows them.
    """

    def __init__(self, name: str, values: Iterable[Any], *, numerics: Iterable[Any] = ()) -> None:
        if not name.isidentifier() or name == VARIANT:
            raise SpaceError(f"a knob's name is an identifier other than {VARIANT!r}, not {name!r}")
        try:
            offered = tuple(plain(value) for value in values)
        except TypeError as error:
            raise SpaceError(f"knob {name!r}: {error}") from error
        if not offered:
            raise SpaceError(f"knob {name!r} has no values; give at least one")
        if len(set(offered)) != len(offered):
            raise SpaceError(f"knob {name!r} offers a value twice: {', '.join(map(repr, offered))}")
        self.name, self.values, self.numerics = name, offered, frozenset(map(plain, numerics))
        if strange := self.numerics - set(offered):
            raise SpaceError(f"knob {name!r} does not offer {', '.join(map(repr, strange))}, marked in numerics")

    def __repr__(self) -> str:
        return f"Knob({self.name!r}, {list(self.values)})"

    def __len__(self) -> int:
        return len(self.values)

    def exact(self) -> Knob:
        """The same knob without the values that change numerics."""
        kept = [value for value in self.values if value not in self.numerics]
        if not kept:
            raise SpaceError(f"every value of {self.name!r} changes numerics; allow it: numerics=[{self.name!r}]")
        return Knob(self.name, kept) if self.numerics else self

    @cached_property
    def column(self) -> NDArray[Any]:
        """The values as an array for rules; bools count as 0 and 1, as in Python's own arithmetic."""
        kinds = {type(value) for value in self.values}
        if kinds <= {bool, int} and all(abs(int(value)) < 1 << 62 for value in self.values):
            return np.array(self.values, dtype=np.int64)
        if kinds <= {bool, int, float}:
            return np.array(self.values, dtype=np.float64)
        return np.array(self.values) if kinds == {str} else np.array(self.values, dtype=object)

    @cached_property
    def codes(self) -> dict[Value, int]:
        """The place of each value."""
        return {value: code for code, value in enumerate(self.values)}


class Rule:
    """A condition every config keeps; the parameter names of `holds` say which knobs it reads.

    `wide` may say the same for whole numpy columns where `holds` itself does not work on them.
    """

    def __init__(self, reason: str, holds: Callable[..., Any], wide: Callable[..., Any] | None = None) -> None:
        if not isinstance(reason, str) or not callable(holds):
            raise SpaceError('a rule is a reason and a function of knobs: Rule("a <= b", lambda a, b: a <= b)')
        parameters = inspect.signature(holds).parameters.values()
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
            raise SpaceError(f"rule {reason!r} takes *args or **kwargs; name the knobs it reads instead")
        self.reason, self.holds, self.wide = reason, holds, wide
        self.reads = tuple(p.name for p in parameters if p.default is p.empty)
        if not self.reads:
            raise SpaceError(f"rule {reason!r} reads no knob; its parameters are the names of knobs")

    def __repr__(self) -> str:
        return f"Rule({self.reason!r} of {', '.join(self.reads)})"

    def broken_by(self, settings: Mapping[str, Value]) -> bool:
        """Whether `settings`, which binds every knob that is read, breaks this rule."""
        return not self._holds(tuple(settings[name] for name in self.reads))

    def mask(self, knobs: Sequence[Knob], codes: Sequence[NDArray[Any]]) -> Mask:
        """Where the rule holds, for the knobs of `reads` and broadcastable columns of their codes."""
        shape = np.broadcast_shapes(*(column.shape for column in codes))
        answer = self._whole_columns(knobs, codes, shape)
        return self._one_by_one(knobs, codes, shape) if answer is None else answer

    def _whole_columns(
        self, knobs: Sequence[Knob], codes: Sequence[NDArray[Any]], shape: tuple[int, ...]
    ) -> Mask | None:
        """The answer in one numpy evaluation, or None where the function does not work that way."""
        columns = [knob.column[column] for knob, column in zip(knobs, codes, strict=True)]
        try:
            with np.errstate(all="raise"):
                answer = (self.wide or self.holds)(*columns)
        except _REFUSALS:
            return None
        if not isinstance(answer, np.ndarray) or answer.ndim != len(shape) or answer.dtype.kind not in "biuf":
            return None
        mask = np.broadcast_to(answer.astype(bool, copy=False), shape)
        # Arrays may differ from Python's own arithmetic (overflow, `is`, formatting): believe, but compare.
        for row in np.unique(np.linspace(0, mask.size - 1, min(mask.size, CHECKED_ROWS)).astype(np.int64)):
            where = np.unravel_index(row, shape)
            values = tuple(
                knob.values[int(np.broadcast_to(column, shape)[where])]
                for knob, column in zip(knobs, codes, strict=True)
            )
            if bool(mask[where]) != self._holds(values):
                return None
        return mask

    def _one_by_one(self, knobs: Sequence[Knob], codes: Sequence[NDArray[Any]], shape: tuple[int, ...]) -> Mask:
        """The answer value by value, each distinct combination asked once."""
        known: dict[tuple[int, ...], bool] = {}
        spread = [np.broadcast_to(column, shape).reshape(-1).tolist() for column in codes]
        mask = np.empty(len(spread[0]), dtype=bool)
        for row, place in enumerate(zip(*spread, strict=True)):
            if (held := known.get(place)) is None:
                values = tuple(knob.values[code] for knob, code in zip(knobs, place, strict=True))
                held = known[place] = self._holds(values)
            mask[row] = held
        return mask.reshape(shape)

    def _holds(self, values: tuple[Value, ...]) -> bool:
        try:
            return bool(self.holds(*values))
        except _REFUSALS as error:
            settings = ", ".join(f"{name}={value!r}" for name, value in zip(self.reads, values, strict=True))
            raise SpaceError(f"rule {self.reason!r} raised {type(error).__name__}: {error} at {settings}") from error
