"""Prepared cases: arguments to run a launch on, and digests of its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from tunewright.cases.arguments import Arguments, Outputs
from tunewright.cases.sensitivity import Nudge, is_float_array
from tunewright.cases.tolerance import Tolerance
from tunewright.model.signature import Parameter, Signature

VARIES = "varies"
"""The fingerprint of results that differ from run to run."""


class Content(msgspec.Struct, frozen=True):
    """What a launch reads: the number of its case, the seed of the set of arguments, and the draw of their contents.

    Every process makes the same arguments of it.
    """

    case: int
    seed: int = 0
    draw: int = 0


class PreparedCase:
    """A set of arguments of one case, and the tolerance of its results."""

    def __init__(
        self,
        parameters: Sequence[Parameter],
        arguments: Arguments,
        tolerance: float | None = None,
        *,
        weight: float = 1.0,
    ) -> None:
        self.arguments, self.weight = arguments, weight
        self.signature = Signature.of(parameters, arguments.values)
        self.tolerance = Tolerance.of(tolerance, parameters, arguments.pristine)

    def run(
        self,
        launch: Callable[..., Any],
        draw: int = 0,
        *,
        outputs: Outputs = Outputs.POISONED,
        nudge: Nudge | None = None,
    ) -> dict[str, Any]:
        """Returns the results of a launch on fresh arguments; `nudge` changes them first."""
        self.arguments.reset(draw, outputs=outputs)
        if nudge:
            for array in self.arguments.arrays:
                if is_float_array(array):
                    array[...] = nudge(array)  # type: ignore[index]
            self.arguments.push()
        return self.arguments.results(launch(*self.arguments.values))


def fingerprint(results: Mapping[str, Any]) -> str:
    """Returns a short digest of results, bit for bit."""
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, which a cached launch never needs

    digest = sha256()
    for name, value in results.items():
        parts = value if isinstance(value, tuple | list) else (value,)
        for part in parts:
            is_array = isinstance(part, np.ndarray | np.generic) and not part.dtype.hasobject
            digest.update(name.encode() + (part.tobytes() if is_array else repr(part).encode()))
    return digest.hexdigest()[:16]
