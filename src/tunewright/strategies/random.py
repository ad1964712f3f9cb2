"""Random search: draw evenly, never the same config twice; and what other strategies draw from: the untried."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from tunewright.errors import SpaceError
from tunewright.model.trial import Trial
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space

MOST_NUMBERED = 1 << 20
"""Combinations up to which a space is numbered at once; a larger one is sampled as long as that finds fresh configs."""

HAND, HANDS = 64, 16
"""Configs sampled in one go, and how many goes without a fresh one until sampling is given up."""


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


class Untried:
    """The configs of a space that were neither proposed nor told of yet; what is drawn is so no more.

    Memory grows with what was taken, not with the space. Drawing ends when nothing is left, or, in a space too large to
    enumerate, when sampling finds nothing fresh.
    """

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space, self._rng = space, rng
        self._taken: set[Config] = set()
        self._hand: list[Config] = []
        self._decks: list[Deck] | None = None
        if space.combinations <= MOST_NUMBERED:
            self._number()

    def __contains__(self, config: Config) -> bool:
        return config not in self._taken and config in self._space

    def claim(self, config: Config) -> bool:
        """Take one config if it is untried; whether it was."""
        if fresh := config in self:
            self._taken.add(config)
        return fresh

    def strike(self, config: Config) -> bool:
        """Strike out a config that was tried, whoever proposed it; whether it is of the space at all."""
        return config in self._taken or self.claim(config)

    def draw(self) -> Config | None:
        """A config that is still untried, variants evenly; None if there is none."""
        config = self._sampled() if self._decks is None else self._dealt()
        if config is not None:
            self._taken.add(config)
        return config

    def _sampled(self) -> Config | None:
        for _ in range(HANDS):
            while self._hand:
                if (config := self._hand.pop()) not in self._taken:
                    return config
            self._hand = self._space.sample(self._rng, HAND)
        return self._dealt() if self._number() else None

    def _number(self) -> bool:
        """Go over to drawing by number; whether that can be done."""
        try:
            sizes = list(self._space.sizes().values())
        except SpaceError:
            return False
        if max(sizes) >= 1 << 62:
            return False
        self._decks = [Deck(start, size) for start, size in zip(accumulate([0, *sizes]), sizes, strict=False)]
        return True

    def _dealt(self) -> Config | None:
        while left := [deck for deck in self._decks or () if len(deck)]:
            deck = left[int(self._rng.integers(len(left)))]
            if (config := self._space[deck.draw(self._rng)]) not in self._taken:
                return config
        return None


class RandomSearch:
    """Draws without repeating, variants evenly; a space too large to enumerate is sampled."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._untried = Untried(space, rng)

    def ask(self, count: int) -> Sequence[Config]:
        """Up to `count` fresh configs."""
        drawn = (self._untried.draw() for _ in range(count))
        return [config for config in drawn if config is not None]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Random search does not learn; but what was tried is not drawn again."""
        for trial in trials:
            self._untried.strike(trial.config)
