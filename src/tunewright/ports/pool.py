"""Pool: where attempts run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from tunewright.model.trial import Entry, Trial

Attempt = Callable[[Entry], Trial]
"""Tries one config; whatever the config breaks is in the trial it returns. It may also have a method `race`."""


class Pool(Protocol):
    """Runs attempts, `width` at a time; one that dies costs its own trial and nothing else."""

    width: int

    def run(self, attempt: Attempt, entries: Iterable[Entry]) -> Iterator[Trial]:
        """Trials as they finish. Entries are drawn one at a time, when a place is free: never ahead."""
        ...

    def close(self) -> None:
        """End what is running; the pool may be used again."""
        ...
