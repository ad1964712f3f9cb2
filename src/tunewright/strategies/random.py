"""Random search without repetition, and the set of untried configs that other strategies draw from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from tunewright.errors import SpaceError
from tunewright.model.trial import Trial
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space

MAX_INDEXED = 1 << 20
"""Combinations up to which configs are drawn by index; larger spaces are sampled while that finds new configs."""

BATCH, MAX_EMPTY_BATCHES = 64, 16
"""Configs sampled at once, and batches without a new config after which sampling stops."""


class LazyShuffle:
    """A random permutation of the indices of one variant, by a Fisher-Yates shuffle that stores only moved entries."""

    def __init__(self, start: int, size: int) -> None:
        self._start, self._size, self._drawn = start, size, 0
        self._moved: dict[int, int] = {}

    def __len__(self) -> int:
        return self._size - self._drawn

    def draw(self, rng: np.random.Generator) -> int:
        """Returns the next index."""
        position, swap = self._drawn, int(rng.integers(self._drawn, self._size))
        index = self._moved.get(swap, swap)
        self._moved[swap] = self._moved.pop(position, position)
        self._drawn += 1
        return self._start + index


class UntriedConfigs:
    """The configs of a space that were neither proposed nor tried yet.

    Memory grows with the configs used, not with the space. Drawing ends when none is left or, in a space too large to
    enumerate, when sampling finds no new one.
    """

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space, self._rng = space, rng
        self._used: set[Config] = set()
        self._batch: list[Config] = []
        self._shuffles: list[LazyShuffle] | None = None
        if space.combinations <= MAX_INDEXED:
            self._index_space()

    def __contains__(self, config: Config) -> bool:
        return config not in self._used and config in self._space

    def claim(self, config: Config) -> bool:
        """Use a config if it is untried. Returns whether it was."""
        if untried := config in self:
            self._used.add(config)
        return untried

    def mark_tried(self, config: Config) -> bool:
        """Exclude a config that was tried, by whomever. Returns whether the space contains it."""
        return config in self._used or self.claim(config)

    def draw(self) -> Config | None:
        """Returns an untried config, each variant equally likely; None if there is none."""
        config = self._draw_by_sampling() if self._shuffles is None else self._draw_by_index()
        if config is not None:
            self._used.add(config)
        return config

    def _draw_by_sampling(self) -> Config | None:
        for _ in range(MAX_EMPTY_BATCHES):
            while self._batch:
                if (config := self._batch.pop()) not in self._used:
                    return config
            self._batch = self._space.sample(self._rng, BATCH)
        return self._draw_by_index() if self._index_space() else None

    def _index_space(self) -> bool:
        """Switch to drawing by index. Returns whether the space can be indexed."""
        try:
            sizes = list(self._space.sizes().values())
        except SpaceError:
            return False
        if max(sizes) >= 1 << 62:
            return False
        self._shuffles = [LazyShuffle(start, size) for start, size in zip(accumulate([0, *sizes]), sizes, strict=False)]
        return True

    def _draw_by_index(self) -> Config | None:
        while remaining := [shuffle for shuffle in self._shuffles or () if len(shuffle)]:
            shuffle = remaining[int(self._rng.integers(len(remaining)))]
            if (config := self._space[shuffle.draw(self._rng)]) not in self._used:
                return config
        return None


class RandomSearch:
    """Random search without repetition; each variant is equally likely."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._untried = UntriedConfigs(space, rng)

    def ask(self, count: int) -> Sequence[Config]:
        """Returns up to `count` new configs."""
        proposals = (self._untried.draw() for _ in range(count))
        return [config for config in proposals if config is not None]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Exclude tried configs from later draws."""
        for trial in trials:
            self._untried.mark_tried(trial.config)
