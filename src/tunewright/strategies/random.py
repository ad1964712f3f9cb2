"""Random search: draw evenly, never the same config twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunewright.errors import SpaceError
from tunewright.model.config import Config
from tunewright.model.space import Space
from tunewright.model.trial import Trial

RETRIES = 64


class RandomSearch:
    """Draws without repeating; a space too large to enumerate is sampled."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space, self._rng = space, rng
        try:
            self._size: int | None = len(space)
        except SpaceError:
            self._size = None
        self._moved: dict[int, int] = {}
        self._drawn = 0
        self._seen: set[Config] = set()

    def ask(self, count: int) -> Sequence[Config]:
        """Up to `count` fresh configs."""
        if self._size is None:
            return self._sampled(count)
        count = min(count, self._size - self._drawn)
        return [self._space[self._next_index(self._size)] for _ in range(count)]

    def _next_index(self, size: int) -> int:
        """The next of a random permutation; Fisher and Yates, remembering only what moved."""
        here = self._drawn
        there = int(self._rng.integers(here, size))
        index = self._moved.pop(there, there) if there == here else self._moved.get(there, there)
        if there != here:
            self._moved[there] = self._moved.pop(here, here)
        self._drawn += 1
        return index

    def _sampled(self, count: int) -> list[Config]:
        fresh: list[Config] = []
        for _ in range(RETRIES):
            for config in self._space.sample(self._rng, count - len(fresh)):
                if config not in self._seen:
                    self._seen.add(config)
                    fresh.append(config)
            if len(fresh) == count:
                break
        return fresh

    def tell(self, trials: Sequence[Trial]) -> None:
        """Random search does not learn."""
