"""Random search: draw evenly, never the same config twice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from tunewright.errors import SpaceError
from tunewright.model.trial import Trial
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space

RETRIES = 64
MOST_NUMBERED = 1 << 62


class Deck:
    """Indices of one variant, drawn in random order; Fisher and Yates, remembering only what moved."""

    def __init__(self, start: int, size: int) -> None:
        self._start, self._size, self._drawn = start, size, 0
        self._moved: dict[int, int] = {}

    def __len__(self) -> int:
        return self._size - self._drawn

    def draw(self, rng: np.random.Generator) -> int:
        """The next index."""
        here, there = self._drawn, int(rng.integers(self._drawn, self._size))
        index = self._moved.get(there, there)
        self._moved[there] = self._moved.pop(here, here)
        self._drawn += 1
        return self._start + index


class RandomSearch:
    """Draws without repeating, variants evenly; a space too large to enumerate is sampled."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space, self._rng = space, rng
        self._seen: set[Config] = set()
        self._decks: list[Deck] | None = None
        try:
            sizes = list(space.sizes().values())
        except SpaceError:
            return
        if max(sizes) >= MOST_NUMBERED:
            return
        self._decks = [Deck(start, size) for start, size in zip(accumulate([0, *sizes]), sizes, strict=False)]

    def ask(self, count: int) -> Sequence[Config]:
        """Up to `count` fresh configs."""
        if self._decks is None:
            return self._sampled(count)
        drawn: list[Config] = []
        while len(drawn) < count and (left := [deck for deck in self._decks if len(deck)]):
            deck = left[int(self._rng.integers(len(left)))]
            drawn.append(self._space[deck.draw(self._rng)])
        return drawn

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
