"""Simulated annealing: a walk from config to config that takes worse ones less and less often."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from math import exp, exp2, inf

import numpy as np

from tunewright.model.trial import Trial
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space
from tunewright.strategies.moves import Moves, cost
from tunewright.strategies.random import Untried

HOT = 0.1
"""The temperature at first, in log time: a config slower by a tenth is then taken once in e times."""

HALVED = 15
"""Trials after which the temperature has halved: after some fifty, hardly anything worse is taken."""

WIDE = 0.2
"""The share of further knobs that a move turns while it is hot; it shrinks with the fourth root of the temperature."""

STALLED = 40
"""Trials without a better config after which the walk is warmed up again, from one of the best so far."""

ELITE = 10
PATIENCE, FARTHER = 160, 40
"""Moves tried for a fresh config before one is drawn at random; after how many in vain a move turns one knob more."""


class Anneal:
    """Walks at once from the first config told of; good with few trials, and it hardly costs anything.

    The walk crosses configs whose cost is known for nothing, and waits for nobody: while proposals are in flight it
    goes on from where it stands.
    """

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._rng, self._moves, self._untried = rng, Moves(space, rng), Untried(space, rng)
        self._costs: dict[Config, float] = {}
        self._here: Config | None = None
        self._best = inf
        self._age = self._stale = 0

    def ask(self, count: int) -> Sequence[Config]:
        """Up to `count` fresh configs, each a move away from where the walk stands."""
        wave = (self._move() or self._draw() for _ in range(count))
        return [config for config in wave if config is not None]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Each trial may be where the walk goes next."""
        for trial in trials:
            if not self._untried.strike(trial.config):
                continue
            self._costs[trial.config] = cost(trial)
            self._age, self._stale = self._age + 1, self._stale + 1
            if self._costs[trial.config] < self._best:
                self._best, self._stale = self._costs[trial.config], 0
            self._visit(trial.config)
            if self._stale > STALLED and self._best < inf:
                self._warm_up()

    @property
    def _cooled(self) -> float:
        """The temperature as a share of what it was at first."""
        return exp2(-self._age / HALVED)

    def _move(self) -> Config | None:
        """A fresh config near where the walk stands; None if there is none, or it stands nowhere yet."""
        for tries in range(PATIENCE):
            if self._here is None:
                return None
            others = max(0, self._moves.places(self._here) - 1)
            width = int(self._rng.binomial(others, WIDE * self._cooled**0.25))
            there = Config(self._moves.turned(self._here, 1 + width + tries // FARTHER))
            if there in self._costs:
                self._visit(there)
            elif self._untried.claim(there):
                return there
        return None

    def _draw(self) -> Config | None:
        """Any fresh config, from which the walk goes on if it was stuck."""
        self._here = None
        return self._untried.draw()

    def _visit(self, there: Config) -> None:
        """Go there if it is better, or by chance if it is not much worse; from a failure to anywhere."""
        worse = self._costs[there] - self._costs[self._here] if self._here is not None else -inf
        failed = self._here is not None and self._costs[self._here] == inf
        if failed or worse <= 0 or self._rng.random() < exp(-worse / max(HOT * self._cooled, 1e-9)):
            self._here = there

    def _warm_up(self) -> None:
        elite = nsmallest(ELITE, self._costs, key=self._costs.__getitem__)
        self._here = elite[int(self._rng.integers(len(elite)))]
        self._age = self._stale = 0
