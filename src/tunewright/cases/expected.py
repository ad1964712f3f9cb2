"""Expected results, and how others differ from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from tunewright.cases.sensitivity import Nudge, sensitivities
from tunewright.cases.tolerance import Tolerance, find_mismatch

Compute = Callable[[Nudge | None], Sequence[Any]]
"""Computes results, from slightly other inputs if there is a nudge."""


class ExpectedResults:
    """What `compute` returns at once; it computes again if results differ, to see how large their terms are."""

    def __init__(self, compute: Compute) -> None:
        self._compute = compute
        self.values = compute(None)

    @cached_property
    def _scales(self) -> Sequence[Any]:
        return sensitivities(self._compute, self.values)

    def mismatch(self, results: Mapping[str, Any], tolerance: Tolerance, *, same_dtype: bool) -> str | None:
        """Returns how results differ; None if they do not, or as little as rounding in their terms may cause."""
        problem = find_mismatch(self.values, dict(results), tolerance, same_dtype=same_dtype)
        if problem is None:
            return None
        return find_mismatch(self.values, dict(results), tolerance, same_dtype=same_dtype, scales=self._scales)
