"""A pool of one: attempts run here, one after another, with nothing between them and this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tunewright.model.config import Config
from tunewright.model.trial import Trial
from tunewright.ports.pool import Attempt


class SerialPool:
    """Runs each attempt where it stands. What crashes here crashes you: for trusted kernels and tests."""

    def __init__(self, width: int = 1) -> None:
        self.width = 1

    def run(self, attempt: Attempt, configs: Iterable[Config]) -> Iterator[Trial]:
        """Trials in order."""
        return (attempt(config) for config in configs)

    def close(self) -> None:
        """Nothing to end."""
