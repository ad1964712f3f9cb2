"""Results of contestants, compared with the reference, which runs in the referee's own process."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.cases.foreign_arrays import to_host
from tunewright.cases.tolerance import FEW_TERMS, MANY_TERMS, Tolerance, find_mismatch, widen
from tunewright.referee.contestant import Spec
from tunewright.referee.task import Task, TaskError


class ResultChecker:
    """The expected results of a task, and what is wrong with others; `seed` is that of a model's parameters."""

    def __init__(self, task: Task, seed: int) -> None:
        self._task, self._reference = task, task.bind(seed)
        self._specs: dict[int, list[Spec]] = {}
        self._is_precise = task.precise

    def specs(self, shape: int, arguments: Sequence[Any]) -> list[Spec]:
        """Returns shapes and dtypes of the results for a shape."""
        if shape not in self._specs:
            parts = self._compute(arguments)
            self._specs[shape] = [(part.shape, part.dtype) for part in parts]
        return self._specs[shape]

    def expected(self, arguments: Sequence[Any]) -> list[NDArray[Any]]:
        """Returns what is right, in double precision unless the reference cannot compute in it."""
        if self._is_precise:
            try:
                return self._compute([widen(value) for value in arguments])
            except (TypeError, ValueError, RuntimeError):
                self._is_precise = False
        return self._compute(arguments)

    def _compute(self, arguments: Sequence[Any]) -> list[NDArray[Any]]:
        copies = [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]
        returned = to_host(self._reference(*copies))
        parts = returned if isinstance(returned, tuple | list) else (returned,)
        return [np.asarray(part) for part in parts]

    def find_mismatch(
        self, expected: Sequence[NDArray[Any]], results: Sequence[NDArray[Any]], arguments: Sequence[Any]
    ) -> str | None:
        """Returns why results are wrong; None if they are right."""
        axes = [size for value in arguments if isinstance(value, np.ndarray) for size in value.shape]
        terms = min(MANY_TERMS, max([FEW_TERMS, *axes]))
        for number, (right, actual) in enumerate(zip(expected, results, strict=True)):
            name = "the result" if len(results) == 1 else f"result {number}"
            tolerance = Tolerance(self._task.tolerance_for(actual.dtype.name), terms, "the longest axis")
            if mismatch := find_mismatch([right], {name: actual}, tolerance):
                return mismatch
        return None

    def require_sensitive(self, seeds: Sequence[int], constant_seed: int) -> None:
        """Raises TaskError if results of different inputs pass for each other: a constant would be right."""
        for shape in range(len(self._task.shapes)):
            sets = [self._task.make_inputs(shape, seed, constant_seed) for seed in seeds]
            first, *others = [self.expected(arguments) for arguments in sets]
            specs = self.specs(shape, sets[0])
            stored = [part.astype(dtype) for part, (_, dtype) in zip(first, specs, strict=True)]
            for expected in others:
                same_shapes = [part.shape for part in expected] == [part.shape for part in stored]
                if same_shapes and self.find_mismatch(expected, stored, sets[0]) is None:
                    sizes = ", ".join(f"{name}={size}" for name, size in self._task.shapes[shape].items())
                    raise TaskError(
                        f"the results of different inputs agree within the tolerance ({sizes or 'its only shape'}): "
                        "a constant would pass. Draw inputs that differ more, or lower the tolerance"
                    )


def digest_arguments(arguments: Sequence[Any]) -> str:
    """Returns a short digest of the arguments of a launch."""
    digest = blake2b(digest_size=12)
    for value in arguments:
        is_array = isinstance(value, np.ndarray)
        digest.update(np.ascontiguousarray(value).tobytes() if is_array else repr(value).encode())
    return digest.hexdigest()
