"""Prepared cases: arguments to run a launch on, and whether its results are right and reproducible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tunewright.cases.arguments import Arguments
from tunewright.cases.tolerance import Tolerance, find_mismatch
from tunewright.model.signature import Parameter, Signature

VARIES = "varies"
"""The fingerprint of results that differ from run to run."""


class PreparedCase:
    """Arguments, the expected results (set once they are known), and the tolerance."""

    def __init__(
        self, parameters: Sequence[Parameter], args: Sequence[Any], tolerance: float | None = None, weight: float = 1.0
    ) -> None:
        self.arguments = Arguments(parameters, args)
        self.signature = Signature.of(parameters, self.arguments.pristine)
        self.tolerance = Tolerance.of(tolerance, parameters, args)
        self.weight = weight
        self.expected: list[Any] = []

    def run(self, launch: Callable[..., Any]) -> dict[str, Any]:
        """Returns the results of a launch on fresh arguments."""
        self.arguments.reset()
        return self.arguments.results(launch(*self.arguments.values))

    def verify(self, launch: Callable[..., Any], *, same_dtype: bool) -> tuple[str | None, str]:
        """Returns what is wrong with the results of a launch, and their fingerprint over two runs."""
        results = self.run(launch)
        mismatch = self.arguments.damage() or find_mismatch(
            self.expected, results, self.tolerance, same_dtype=same_dtype
        )
        if mismatch:
            return mismatch, ""
        first = fingerprint(results)
        return None, first if fingerprint(self.run(launch)) == first else VARIES


def fingerprint(results: dict[str, Any]) -> str:
    """Returns a short digest of results, bit for bit."""
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, which a cached launch never needs

    digest = sha256()
    for name, value in results.items():
        parts = value if isinstance(value, tuple | list) else (value,)
        for part in parts:
            is_array = isinstance(part, np.ndarray | np.generic) and not part.dtype.hasobject
            digest.update(name.encode() + (part.tobytes() if is_array else repr(part).encode()))
    return digest.hexdigest()[:16]
