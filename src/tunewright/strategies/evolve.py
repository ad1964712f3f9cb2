"""Evolutionary search: children of good configs, one at a time."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from math import inf

import numpy as np

from tunewright.model.trial import Trial
from tunewright.spaces.config import Config, Value
from tunewright.spaces.space import Space
from tunewright.strategies.moves import Moves, cost
from tunewright.strategies.random import Untried

FOUNDERS = 8
"""Working configs drawn at random before any are bred."""

POPULATION = 16
"""How many of the best are parents; few, because trials are dear."""

CHANGED = 0.1
"""The share of further knobs that a mutation turns besides the first."""

BROODS = 48
"""Children bred for a fresh one before neighbours of the best are looked at."""


class Population:
    """The best trials so far, the best first; those who breed."""

    def __init__(self, moves: Moves, rng: np.random.Generator, size: int = POPULATION) -> None:
        self._moves, self._rng, self._size = moves, rng, size
        self._ranked: list[tuple[float, int, dict[str, Value]]] = []
        self._told = 0

    def __len__(self) -> int:
        return len(self._ranked)

    def __iter__(self) -> Iterator[Config]:
        return (Config(settings) for _, _, settings in self._ranked)

    def add(self, config: Config, value: float) -> None:
        """One more, if it is good enough: the lower the value the better, and of equals the earlier."""
        self._told += 1
        if value < (self._ranked[-1][0] if len(self) == self._size else inf):
            insort(self._ranked, (value, self._told, dict(config)))
            del self._ranked[self._size :]

    def child(self) -> Config:
        """The child of two members, the better the likelier: crossed knob by knob, then perhaps mutated."""
        one, other = self._parent(), self._parent()
        crossed = self._moves.crossed(one, other)
        if crossed not in (one, other) and self._rng.random() < 0.5:
            return Config(crossed)
        others = max(0, self._moves.places(crossed) - 1)
        return Config(self._moves.turned(crossed, 1 + int(self._rng.binomial(others, CHANGED))))

    def _parent(self) -> dict[str, Value]:
        return self._ranked[int(len(self) * self._rng.random() ** 2)][2]


class Evolve:
    """Steady state: a trial that is good enough joins the parents at once, so that nobody waits for a generation."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space, self._untried = space, Untried(space, rng)
        self._population = Population(Moves(space, rng), rng)

    def ask(self, count: int) -> Sequence[Config]:
        """Up to `count` fresh children; founders first."""
        wave = (self._bred() or self._untried.draw() for _ in range(count))
        return [config for config in wave if config is not None]

    def tell(self, trials: Sequence[Trial]) -> None:
        """What works may breed."""
        for trial in trials:
            if self._untried.strike(trial.config):
                self._population.add(trial.config, cost(trial))

    def _bred(self) -> Config | None:
        """A fresh child, or a fresh neighbour of the best if breeding only brings forth what is known."""
        if len(self._population) < FOUNDERS:
            return None
        for _ in range(BROODS):
            if self._untried.claim(child := self._population.child()):
                return child
        for config in self._population:
            for near in self._space.neighbors(config, reach=None):
                if self._untried.claim(near):
                    return near
        return None
