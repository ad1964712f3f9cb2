"""Exam: one case made real; what a launch is run on, and whether its results are right and repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tunewright.cases.arguments import Arguments
from tunewright.cases.judge import Nearness, objection
from tunewright.model.signature import Parameter, Signature

VARIES = "varies"
"""The fingerprint of results that differ from run to run."""


class Exam:
    """Arguments, the right results for them (set once they are known), and how near is near enough."""

    def __init__(
        self, parameters: Sequence[Parameter], args: Sequence[Any], tolerance: float | None = None, weight: float = 1.0
    ) -> None:
        self.arguments = Arguments(parameters, args)
        self.signature = Signature.of(parameters, self.arguments.pristine)
        self.near = Nearness.of(tolerance, parameters, args)
        self.weight = weight
        self.expected: list[Any] = []

    def run(self, launch: Callable[..., Any]) -> dict[str, Any]:
        """The results of a launch on fresh arguments."""
        self.arguments.reset()
        return self.arguments.results(launch(*self.arguments.values))

    def judge(self, launch: Callable[..., Any], *, same_dtype: bool) -> tuple[str | None, str]:
        """What is wrong with a launch, in words, and the fingerprint of its results over two runs."""
        results = self.run(launch)
        said = self.arguments.damage() or objection(self.expected, results, self.near, same_dtype=same_dtype)
        if said:
            return said, ""
        first = fingerprint(results)
        return None, first if fingerprint(self.run(launch)) == first else VARIES


def fingerprint(results: dict[str, Any]) -> str:
    """A short digest of results, bit for bit: equal digests, equal results."""
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, which a cached launch never needs

    made = sha256()
    for name, value in results.items():
        parts = value if isinstance(value, tuple | list) else (value,)
        for part in parts:
            array = isinstance(part, np.ndarray | np.generic) and not part.dtype.hasobject
            made.update(name.encode() + (part.tobytes() if array else repr(part).encode()))
    return made.hexdigest()[:16]
