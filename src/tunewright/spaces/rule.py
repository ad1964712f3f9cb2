"""Knobs and rules: tunable parameters, and constraints between them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SpaceError
from tunewright.spaces.config import VARIANT, Value, plain
from tunewright.spaces.ranges import Range

Mask = NDArray[np.bool_]

CHECKED_ROWS = 32
"""Rows of each vectorized result that are compared with the scalar one."""

_EVALUATION_ERRORS = (TypeError, ValueError, ArithmeticError, AttributeError, LookupError, NotImplementedError)


class Knob:
    """A tunable parameter; its values are ordered, usually from small to large.

    Values are bools, numbers, texts or members of an enum; a numpy array is a list of its elements, and a `Range` is
    searched without being listed. Stores keep an enum by name; the kernel and rules get the member.

    `numerics` are the values that change the numbers a kernel computes (fast-math, TF32, flush-to-zero). They are
    left out unless `tune(..., numerics=[...])` allows them.

    Example: `Knob("tile", [16, 32, 64])`
    """

    def __init__(self, name: str, values: Iterable[Any] | Range, *, numerics: Iterable[Any] = ()) -> None:
        if not isinstance(name, str) or not name.isidentifier() or name == VARIANT:
            raise SpaceError(f"a knob's name is an identifier other than {VARIANT!r}, not {name!r}")
        self.name, self.range = name, values if isinstance(values, Range) else None
        self.members: dict[str, Enum] = {}
        listed = () if isinstance(values, Range) else self._listed(values)
        self._values = listed
        self.numerics = frozenset(map(plain, numerics))
        if unknown := self.numerics - set(listed):
            raise SpaceError(f"numerics of knob {name!r} lists {', '.join(map(repr, unknown))}, which it cannot have")

    def _listed(self, values: Iterable[Any]) -> tuple[Value, ...]:
        """Returns listed values as plain ones, and keeps the members of enums."""
        if not isinstance(values, Iterable):
            raise SpaceError(f"knob {self.name!r} needs a list of values, not {values!r}: Knob({self.name!r}, [...])")
        try:
            given = list(values)
            allowed = tuple(plain(value) for value in given)
        except TypeError as error:
            raise SpaceError(f"knob {self.name!r}: {error}") from error
        if not allowed:
            raise SpaceError(f"knob {self.name!r} has no values; give at least one")
        if len(set(allowed)) != len(allowed):
            raise SpaceError(f"knob {self.name!r} lists a value twice: {', '.join(map(repr, allowed))}")
        if any(value != value for value in allowed):  # noqa: PLR0124 - NaN
            raise SpaceError(f"knob {self.name!r} has a NaN, which equals no value; leave it out")
        self.members = {value.name: value for value in given if isinstance(value, Enum)}
        return allowed

    def __repr__(self) -> str:
        return f"Knob({self.name!r}, {self.range if self.range is not None else list(self.values)!r})"

    def __str__(self) -> str:
        """The values, as a person reads them."""
        return str(self.range) if self.range is not None else ", ".join(map(str, self.values))

    def __len__(self) -> int:
        return len(self.values if self.range is None else self.range)

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """All values, in order; those of a range are computed when they are first needed one by one."""
        return self._values if self.range is None else tuple(self.range)

    def exact(self) -> Knob:
        """Returns this knob without the values that change numerics."""
        if not self.numerics:
            return self
        values = [self.given(value) for value in self.values if value not in self.numerics]
        if not values:
            raise SpaceError(f"every value of {self.name!r} changes numerics; allow it: numerics=[{self.name!r}]")
        return Knob(self.name, values)

    def given(self, value: Value) -> Any:
        """Returns a value as kernels and rules get it: the member of an enum instead of its name."""
        return self.members.get(value, value) if self.members else value  # type: ignore[arg-type]

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[Any]:
        """Returns the codes of random values, with replacement; those of a range are uniform on its scale."""
        return rng.integers(len(self), size=count) if self.range is None else self.range.draw(rng, count)

    def moves(self, code: int) -> Iterable[int]:
        """Returns the codes to try from one: all others, or some at growing distances in a range."""
        if self.range is not None:
            return self.range.around(code)
        return (other for other in range(len(self)) if other != code)

    @cached_property
    def column(self) -> NDArray[Any]:
        """The values as an array for rules; bools count as 0 and 1, as in Python's own arithmetic."""
        if self.members:
            return np.array([self.given(value) for value in self.values], dtype=object)
        kinds = {type(value) for value in self.values}
        if kinds <= {bool, int} and all(abs(int(value)) < 1 << 62 for value in self.values):
            return np.array(self.values, dtype=np.int64)
        if kinds <= {bool, int, float}:
            return np.array(self.values, dtype=np.float64)
        return np.array(self.values) if kinds == {str} else np.array(self.values, dtype=object)

    @cached_property
    def codes(self) -> dict[Value, int]:
        """The position of each value."""
        return {value: code for code, value in enumerate(self.values)}


class Rule:
    """A constraint on configs: `reason` explains it, and the parameter names of `holds` are the knobs it reads.

    `vectorized` computes the same for whole numpy columns, where `holds` itself does not work on them.

    Example: `Rule("a tile fits in shared memory", lambda bm, bk: bm * bk <= 4096)`
    """

    def __init__(self, reason: str, holds: Callable[..., Any], vectorized: Callable[..., Any] | None = None) -> None:
        if not isinstance(reason, str) or not callable(holds):
            raise SpaceError('a rule is a reason and a function of knobs: Rule("a <= b", lambda a, b: a <= b)')
        parameters = inspect.signature(holds).parameters.values()
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
            raise SpaceError(f"rule {reason!r} takes *args or **kwargs; name the knobs it reads instead")
        self.reason, self.holds, self.vectorized = reason, holds, vectorized
        self.reads = tuple(p.name for p in parameters if p.default is p.empty)
        if not self.reads:
            raise SpaceError(f"rule {reason!r} reads no knob; its parameters are the names of knobs")

    def __repr__(self) -> str:
        return f"Rule({self.reason!r} of {', '.join(self.reads)})"

    def broken_by(self, settings: Mapping[str, Any]) -> bool:
        """Whether `settings`, which has a value for every knob that is read, breaks this rule."""
        return not self._holds(tuple(settings[name] for name in self.reads))

    def mask(self, knobs: Sequence[Knob], codes: Sequence[NDArray[Any]]) -> Mask:
        """Returns where the rule holds, given the knobs it reads and broadcastable columns of their codes."""
        shape = np.broadcast_shapes(*(column.shape for column in codes))
        mask = self._vectorized_mask(knobs, codes, shape)
        return self._scalar_mask(knobs, codes, shape) if mask is None else mask

    def _vectorized_mask(
        self, knobs: Sequence[Knob], codes: Sequence[NDArray[Any]], shape: tuple[int, ...]
    ) -> Mask | None:
        """Returns the mask from one numpy evaluation; None if the function does not work on arrays."""
        columns = [knob.column[column] for knob, column in zip(knobs, codes, strict=True)]
        try:
            with np.errstate(all="raise"):
                result = (self.vectorized or self.holds)(*columns)
        except _EVALUATION_ERRORS:
            return None
        if not isinstance(result, np.ndarray) or result.ndim != len(shape) or result.dtype.kind not in "biuf":
            return None
        mask = np.broadcast_to(result.astype(bool, copy=False), shape)
        # Array arithmetic may differ from Python's (overflow, `is`, formatting), so some rows are compared.
        for row in np.unique(np.linspace(0, mask.size - 1, min(mask.size, CHECKED_ROWS)).astype(np.int64)):
            where = np.unravel_index(row, shape)
            values = tuple(
                knob.given(knob.values[int(np.broadcast_to(column, shape)[where])])
                for knob, column in zip(knobs, codes, strict=True)
            )
            if bool(mask[where]) != self._holds(values):
                return None
        return mask

    def _scalar_mask(self, knobs: Sequence[Knob], codes: Sequence[NDArray[Any]], shape: tuple[int, ...]) -> Mask:
        """Returns the mask by calling `holds` once for each distinct combination."""
        results: dict[tuple[int, ...], bool] = {}
        columns = [np.broadcast_to(column, shape).reshape(-1).tolist() for column in codes]
        mask = np.empty(len(columns[0]), dtype=bool)
        for row, combination in enumerate(zip(*columns, strict=True)):
            if (holds := results.get(combination)) is None:
                values = tuple(knob.given(knob.values[code]) for knob, code in zip(knobs, combination, strict=True))
                holds = results[combination] = self._holds(values)
            mask[row] = holds
        return mask.reshape(shape)

    def _holds(self, values: tuple[Value, ...]) -> bool:
        try:
            return bool(self.holds(*values))
        except _EVALUATION_ERRORS as error:
            settings = ", ".join(f"{name}={value!r}" for name, value in zip(self.reads, values, strict=True))
            raise SpaceError(f"rule {self.reason!r} raised {type(error).__name__}: {error} at {settings}") from error


def require_kind(what: str, given: Iterable[Any], kind: type, example: str) -> None:
    """Raises if one of the parts that a space was given is of another kind; `example` shows how one is written."""
    for part in given:
        if not isinstance(part, kind):
            raise SpaceError(f"{what} are written as {what}=[{example}], not as {part!r}")
