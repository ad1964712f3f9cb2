"""Figure: what is known of a config without trying it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SpaceError
from tunewright.spaces.rule import Knob

_REFUSALS = (TypeError, ValueError, ArithmeticError, AttributeError, LookupError)


class Figure:
    """A number computed from knobs: registers a thread, bytes of shared memory, occupancy, work per block.

    It excludes nothing, which is what a rule does; strategies that learn take it as one more thing to learn from.
    The parameter names of `of` say which knobs it reads.
    """

    def __init__(self, name: str, of: Callable[..., Any]) -> None:
        if not isinstance(name, str) or not callable(of):
            raise SpaceError('a figure is a name and a function of knobs: Figure("area", lambda bm, bn: bm * bn)')
        self.name, self.of = name, of
        self.reads = tuple(inspect.signature(of).parameters)
        if not self.reads:
            raise SpaceError(f"figure {name!r} reads no knob; its parameters are the names of knobs")

    def __repr__(self) -> str:
        return f"Figure({self.name!r} of {', '.join(self.reads)})"

    def column(self, knobs: Sequence[Knob], codes: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        """The figure of each row, for the knobs of `reads` and columns of their codes; each combination asked once."""
        rows, back = np.unique(np.stack(codes, axis=1), axis=0, return_inverse=True)
        found = [self._one(tuple(k.values[int(c)] for k, c in zip(knobs, row, strict=True))) for row in rows]
        return np.array(found, dtype=np.float64)[back.reshape(-1)]

    def _one(self, values: tuple[Any, ...]) -> float:
        try:
            return float(self.of(*values))
        except _REFUSALS as error:
            said = ", ".join(f"{name}={value!r}" for name, value in zip(self.reads, values, strict=True))
            raise SpaceError(f"figure {self.name!r} raised {type(error).__name__}: {error} at {said}") from error
