"""Evolutionary search with a steady-state population."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from math import inf

import numpy as np

from tunewright.model.trial import Trial
from tunewright.spaces.config import Config, Value
from tunewright.spaces.space import Space
from tunewright.strategies.neighborhood import Neighborhood, cost
from tunewright.strategies.random import UntriedConfigs

FOUNDERS = 8
"""Working configs drawn at random before the first child."""

POPULATION = 16
"""Best configs kept as parents; few, because trials are expensive."""

EXTRA_MUTATIONS = 0.1
"""Share of further knobs that a mutation changes besides the first."""

MAX_CHILDREN = 48
"""Children tried before neighbors of the best configs are proposed instead."""


class Population:
    """The best configs so far, best first, which are the parents of new ones."""

    def __init__(self, neighborhood: Neighborhood, rng: np.random.Generator, size: int = POPULATION) -> None:
        self._neighborhood, self._rng, self._size = neighborhood, rng, size
        self._ranked: list[tuple[float, int, dict[str, Value]]] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self._ranked)

    def __iter__(self) -> Iterator[Config]:
        return (Config(settings) for _, _, settings in self._ranked)

    def add(self, config: Config, value: float) -> None:
        """Add a config if its value is low enough; of equal values the earlier one ranks first."""
        self._added += 1
        if value < (self._ranked[-1][0] if len(self) == self._size else inf):
            insort(self._ranked, (value, self._added, dict(config)))
            del self._ranked[self._size :]

    def child(self) -> Config:
        """Returns a child of two members, better ones more likely: crossover, then perhaps mutation."""
        parents = self._pick_parent(), self._pick_parent()
        child = self._neighborhood.crossover(*parents)
        if child not in parents and self._rng.random() < 0.5:
            return Config(child)
        further = max(0, self._neighborhood.mutable_count(child) - 1)
        return Config(self._neighborhood.mutate(child, 1 + int(self._rng.binomial(further, EXTRA_MUTATIONS))))

    def _pick_parent(self) -> dict[str, Value]:
        return self._ranked[int(len(self) * self._rng.random() ** 2)][2]


class Evolve:
    """Evolutionary search in steady state: a good trial joins the parents at once, without generations."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space, self._untried = space, UntriedConfigs(space, rng)
        self._population = Population(Neighborhood(space, rng), rng)

    def ask(self, count: int) -> Sequence[Config]:
        """Returns up to `count` new configs: random founders first, then children."""
        proposals = (self._breed() or self._untried.draw() for _ in range(count))
        return [config for config in proposals if config is not None]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Add the trials to the population."""
        for trial in trials:
            if self._untried.mark_tried(trial.config):
                self._population.add(trial.config, cost(trial))

    def _breed(self) -> Config | None:
        """Returns a new child, else a new neighbor of the best configs; None without enough founders."""
        if len(self._population) < FOUNDERS:
            return None
        for _ in range(MAX_CHILDREN):
            if self._untried.claim(child := self._population.child()):
                return child
        for config in self._population:
            for neighbor in self._space.neighbors(config, reach=None):
                if self._untried.claim(neighbor):
                    return neighbor
        return None
