"""The default strategy: several strategies that take turns in one search."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from tunewright.errors import SpaceError
from tunewright.model.trial import Trial
from tunewright.ports.strategy import Forecast, Prior, Strategy
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space
from tunewright.strategies.anneal import Anneal
from tunewright.strategies.bayes import Bayes, BayesOptions
from tunewright.strategies.random import RandomSearch
from tunewright.strategies.transfer import Transfer

MAX_EXHAUSTIVE = 24
"""Configs up to which all are tried, in random order."""

PRIOR_PATIENCE = 8
"""Trials without improvement after which the transfer strategy alternates with a model without the prior."""

STALLED_AFTER = 36
"""Trials without improvement after which annealing gets every fourth turn."""

EXHAUSTED_AFTER = 144
"""Trials without improvement after which the model gets only every eighth turn."""

IMPROVEMENT = 0.995
"""Ratio of times that counts as an improvement; a smaller one could be noise."""

MAX_RETRIES = 16


class Portfolio:
    """Bayesian search, joined by annealing when it stalls, and led by transfer while a prior helps.

    Every strategy is told every trial. They do not know each other's proposals: a strategy that repeats one is asked
    again until it proposes a new config. `options` are those of the Bayesian search.
    """

    def __init__(self, space: Space, rng: np.random.Generator, **options: Any) -> None:
        self._space, self._rng = space, rng
        self._model: Bayes | None = (
            None if _is_tiny(space) else Bayes(space, self._spawn_rng(), BayesOptions(**options))
        )
        self._arms: dict[str, Strategy] = (
            {"bayes": self._model} if self._model else {"random": RandomSearch(space, rng)}
        )
        self._trials: list[Trial] = []
        self._proposed: set[Config] = set()
        self._best, self._since_best, self._turn = float("inf"), 0, 0

    def inform(self, prior: Prior) -> None:
        """Let transfer from the prior lead while it helps."""
        if self._model is None or not prior.sources:
            return
        transfer = Transfer(self._space, self._spawn_rng())
        transfer.inform(prior)
        if transfer.informed:
            self._arms = {"transfer": transfer, **self._arms}

    def _spawn_rng(self) -> np.random.Generator:
        """Returns a generator for one strategy, so that its draws do not depend on others' turns."""
        return np.random.default_rng(self._rng.integers(1 << 62))

    def ask(self, count: int) -> Sequence[Config]:
        """Returns up to `count` new configs."""
        return list(islice(iter(self._next, None), count))

    def _next(self) -> Config | None:
        leader = self._leader()
        for name in dict.fromkeys([leader, *self._arms]):
            for _ in range(MAX_RETRIES):
                proposals = self._arms[name].ask(1)
                if not proposals:
                    break
                if proposals[0] not in self._proposed:
                    self._proposed.add(proposals[0])
                    return proposals[0]
        return None

    def _leader(self) -> str:
        """Returns the strategy whose turn it is: the first one, or others more often the longer it is stalled."""
        self._turn += 1
        if self._model is None:
            return "random"
        if self._is_annealing_turn():
            if "anneal" not in self._arms:
                self._arms["anneal"] = Anneal(self._space, self._spawn_rng())
                self._arms["anneal"].tell(self._trials)
            return "anneal"
        if "transfer" in self._arms and (self._since_best <= PRIOR_PATIENCE or self._turn % 2 == 0):
            return "transfer"
        return "bayes"

    def _is_annealing_turn(self) -> bool:
        """Returns whether it is the turn of annealing."""
        if self._since_best > EXHAUSTED_AFTER:
            return self._turn % 8 > 0
        return self._since_best > STALLED_AFTER and self._turn % 4 == 0

    def forecast(self) -> Forecast | None:
        """Returns the forecast of the Bayesian search."""
        return self._model.forecast() if self._model else None

    def tell(self, trials: Sequence[Trial]) -> None:
        """Tell all strategies."""
        self._trials += trials
        for trial in trials:
            self._proposed.add(trial.config)
            self._since_best += 1
            if trial.works and trial.seconds < IMPROVEMENT * self._best:
                self._since_best = 0
            if trial.works:
                self._best = min(self._best, trial.seconds)
        for arm in self._arms.values():
            arm.tell(trials)


def _is_tiny(space: Space) -> bool:
    try:
        return space.combinations <= 1 << 20 and space.size <= MAX_EXHAUSTIVE
    except SpaceError:
        return False
