"""The serial pool: trials run one after another in this process, without isolation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tunewright.model.trial import Trial, TrialRequest
from tunewright.ports.pool import Attempt


class SerialPool:
    """Runs each trial in this process. A crashing kernel ends the program: for trusted kernels and tests."""

    def __init__(self, width: int = 1) -> None:
        self.width = 1

    def run(self, attempt: Attempt, entries: Iterable[TrialRequest]) -> Iterator[Trial]:
        """Yields trials in order."""
        return (attempt(request) for request in entries)

    def close(self) -> None:
        """Does nothing: there is no worker to end."""
