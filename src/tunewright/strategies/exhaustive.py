"""Exhaustive search: every config, in order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from tunewright.model.trial import Trial
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space


class Exhaustive:
    """Tries every config; for small spaces, and to record a space for replay."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._tried: set[Config] = set()
        self._rest = (config for config in space if config not in self._tried)

    def ask(self, count: int) -> Sequence[Config]:
        """Returns the next `count` configs in order."""
        return list(islice(self._rest, count))

    def tell(self, trials: Sequence[Trial]) -> None:
        """Exclude tried configs from later proposals."""
        self._tried.update(trial.config for trial in trials)
