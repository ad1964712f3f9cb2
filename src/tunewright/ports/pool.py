"""The Pool protocol: where trials run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from tunewright.model.trial import Trial, TrialRequest

Attempt = Callable[[TrialRequest], Trial]
"""Tries one config; a failure of the config is in the returned trial. It may also have a method `race`."""


class Pool(Protocol):
    """Runs up to `width` trials at once; a worker that dies costs only its own trial."""

    width: int

    def run(self, attempt: Attempt, entries: Iterable[TrialRequest]) -> Iterator[Trial]:
        """Yields trials as they finish; takes the next request only when a worker is free."""
        ...

    def close(self) -> None:
        """Stops running trials; the pool may be used again."""
        ...
