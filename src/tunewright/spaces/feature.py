"""Features: numbers known about a config without trying it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SpaceError
from tunewright.spaces.rule import Knob

_EVALUATION_ERRORS = (TypeError, ValueError, ArithmeticError, AttributeError, LookupError)


class Feature:
    """A number computed from knobs: registers per thread, bytes of shared memory, occupancy, work per block.

    A feature excludes no config (that is what a `Rule` does); strategies with a model learn from it.
    The parameter names of `of` are the knobs it reads.

    Example: `Space(*knobs, features=[Feature("area", lambda bm, bn: bm * bn)])`
    """

    def __init__(self, name: str, of: Callable[..., Any]) -> None:
        if not isinstance(name, str) or not callable(of):
            raise SpaceError('a feature is a name and a function of knobs: Feature("area", lambda bm, bn: bm * bn)')
        self.name, self.of = name, of
        self.reads = tuple(inspect.signature(of).parameters)
        if not self.reads:
            raise SpaceError(f"feature {name!r} reads no knob; its parameters are the names of knobs")

    def __repr__(self) -> str:
        return f"Feature({self.name!r} of {', '.join(self.reads)})"

    def column(self, knobs: Sequence[Knob], codes: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        """Returns the feature of each row, given the knobs it reads and their code columns."""
        rows, inverse = np.unique(np.stack(codes, axis=1), axis=0, return_inverse=True)
        settings = (tuple(k.given(k.values[int(c)]) for k, c in zip(knobs, row, strict=True)) for row in rows)
        values = [self._evaluate(setting) for setting in settings]
        return np.array(values, dtype=np.float64)[inverse.reshape(-1)]

    def _evaluate(self, values: tuple[Any, ...]) -> float:
        try:
            return float(self.of(*values))
        except _EVALUATION_ERRORS as error:
            settings = ", ".join(f"{name}={value!r}" for name, value in zip(self.reads, values, strict=True))
            raise SpaceError(f"feature {self.name!r} raised {type(error).__name__}: {error} at {settings}") from error
