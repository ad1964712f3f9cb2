"""A pool of one: attempts run here, one after another, with nothing between them and this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tunewright.model.trial import Entry, Trial
from tunewright.ports.pool import Attempt


class SerialPool:
    """Runs each attempt where it stands. What crashes here crashes you: for trusted kernels and tests."""

    def __init__(self, width: int = 1) -> None:
        self.width = 1

    def run(self, attempt: Attempt, entries: Iterable[Entry]) -> Iterator[Trial]:
        """Trials in order."""
        return (attempt(entry) for entry in entries)

    def close(self) -> None:
        """Nothing to end."""
