"""Exhaustive search: every config, in order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from tunewright.model.trial import Trial
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space


class Exhaustive:
    """Tries everything; for small spaces, and for recording a space to be replayed."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._told: set[Config] = set()
        self._rest = (config for config in space if config not in self._told)

    def ask(self, count: int) -> Sequence[Config]:
        """The next configs in order."""
        return list(islice(self._rest, count))

    def tell(self, trials: Sequence[Trial]) -> None:
        """Nothing to learn; but what was tried is not proposed again."""
        self._told.update(trial.config for trial in trials)
