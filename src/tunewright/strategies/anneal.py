"""Simulated annealing: a random walk that accepts worse configs less and less often."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from math import exp, exp2, inf

import numpy as np

from tunewright.model.trial import Trial
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space
from tunewright.strategies.neighborhood import Neighborhood, cost
from tunewright.strategies.random import UntriedConfigs

INITIAL_TEMPERATURE = 0.1
"""Initial temperature in log time: a config 10 % slower is accepted with probability 1/e."""

HALF_LIFE = 15
"""Trials after which the temperature has halved."""

EXTRA_KNOBS = 0.2
"""Initial share of further knobs that a move changes; it shrinks with the fourth root of the temperature."""

REHEAT_AFTER = 40
"""Trials without improvement after which the walk is reheated and restarts from one of the best configs."""

ELITE = 10
MAX_MOVES, WIDEN_EVERY = 160, 40
"""Moves tried before a config is drawn at random; failed moves after which a move changes one more knob."""


class Anneal:
    """Simulated annealing from the first trial told; cheap, and good with few trials.

    Configs of known cost are passed through without a new trial. While proposals are in flight the walk continues from
    its current config.
    """

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._rng, self._neighborhood, self._untried = rng, Neighborhood(space, rng), UntriedConfigs(space, rng)
        self._costs: dict[Config, float] = {}
        self._current: Config | None = None
        self._best = inf
        self._age = self._since_best = 0

    def ask(self, count: int) -> Sequence[Config]:
        """Returns up to `count` new configs, each one move away from the current one."""
        proposals = (self._move() or self._draw() for _ in range(count))
        return [config for config in proposals if config is not None]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Record costs; the walk may step to each trial's config."""
        for trial in trials:
            if not self._untried.mark_tried(trial.config):
                continue
            self._costs[trial.config] = cost(trial)
            self._age, self._since_best = self._age + 1, self._since_best + 1
            if self._costs[trial.config] < self._best:
                self._best, self._since_best = self._costs[trial.config], 0
            self._step(trial.config)
            if self._since_best > REHEAT_AFTER and self._best < inf:
                self._reheat()

    @property
    def _relative_temperature(self) -> float:
        """Temperature as a share of the initial one."""
        return exp2(-self._age / HALF_LIFE)

    def _move(self) -> Config | None:
        """Returns a new config near the current one; None if there is none or the walk has not started."""
        for tries in range(MAX_MOVES):
            if self._current is None:
                return None
            further = max(0, self._neighborhood.mutable_count(self._current) - 1)
            width = int(self._rng.binomial(further, EXTRA_KNOBS * self._relative_temperature**0.25))
            config = Config(self._neighborhood.mutate(self._current, 1 + width + tries // WIDEN_EVERY))
            if config in self._costs:
                self._step(config)
            elif self._untried.claim(config):
                return config
        return None

    def _draw(self) -> Config | None:
        """Returns a random new config; the walk restarts from it."""
        self._current = None
        return self._untried.draw()

    def _step(self, config: Config) -> None:
        """Step to `config` if it is better, if the current one failed, or by chance if it is not much worse."""
        worse = self._costs[config] - self._costs[self._current] if self._current is not None else -inf
        failed = self._current is not None and self._costs[self._current] == inf
        if (
            failed
            or worse <= 0
            or self._rng.random() < exp(-worse / max(INITIAL_TEMPERATURE * self._relative_temperature, 1e-9))
        ):
            self._current = config

    def _reheat(self) -> None:
        elite = nsmallest(ELITE, self._costs, key=self._costs.__getitem__)
        self._current = elite[int(self._rng.integers(len(elite)))]
        self._age = self._since_best = 0
