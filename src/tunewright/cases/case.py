"""Cases: inputs like the real ones, and how often they occur."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

from tunewright.errors import SignatureError

MakeInputs = Callable[..., Sequence[Any]]
"""Makes the arguments of a call from named sizes."""


class Case:
    """A kind of call that a decision is made for.

    Configs are compared by the weighted mean time over all cases. Sizes that are not given are those of the call at
    hand; `inputs` makes the arguments if random arrays are not like the real ones.

    Example: `tune(space, cases=[Case(weight=900, M=100), Case(weight=3, inputs=skewed)])`
    """

    def __init__(self, *, weight: float = 1.0, inputs: MakeInputs | None = None, **sizes: int) -> None:
        if not (isfinite(weight) and weight > 0):
            raise SignatureError(f"the weight of a case is a positive number, such as a call count, not {weight!r}")
        self.weight, self.inputs, self.sizes = float(weight), inputs, sizes

    def __repr__(self) -> str:
        parts = [f"weight={self.weight!r}", *(f"{name}={size}" for name, size in self.sizes.items())]
        if self.inputs is not None:
            parts.append(f"inputs={getattr(self.inputs, '__qualname__', 'a function')}")
        return f"Case({', '.join(parts)})"
