"""Strategy: proposes configs and learns from trials; measures nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tunewright.model.trial import Trial
from tunewright.spaces.config import Config


class Strategy(Protocol):
    """Made from a space and a random generator, so that the same seed gives the same proposals."""

    def ask(self, count: int) -> Sequence[Config]:
        """Up to `count` configs to try next, none of them proposed before; empty when the search is over."""
        ...

    def tell(self, trials: Sequence[Trial]) -> None:
        """What became of configs, failures included; also of some that were not asked for (the default)."""
        ...
