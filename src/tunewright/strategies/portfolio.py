"""Portfolio: several strategies on one search, each given turns while they pay; the default."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from tunewright.errors import SpaceError
from tunewright.model.trial import Trial
from tunewright.ports.strategy import Outlook, Prior, Strategy
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space
from tunewright.strategies.anneal import Anneal
from tunewright.strategies.bayes import Bayes, Manner
from tunewright.strategies.random import RandomSearch
from tunewright.strategies.transfer import Transfer

TINY = 24
"""Configs up to which there is nothing to be clever about: all are tried, in random order."""

PATIENCE = 8
"""Trials without a better config after which a prior shares its turns with a model that knows nothing of it."""

STUCK = 36
"""Trials without a better config after which a walk that trusts no model has every fourth turn."""

LOST = 144
"""Trials without a better config after which the model has every eighth turn: it has said what it knows."""

BETTER = 0.995
"""What counts as a better config: less could be noise."""

RETRIES = 16


class Portfolio:
    """A model leads; where it is stuck others take turns with it; what other keys showed leads while it holds.

    Every strategy hears of every trial, so that a hand-over costs nothing. They never see each other: what one has
    proposed is asked of another again only until it comes up with something fresh. `manner` is that of the model.
    """

    def __init__(self, space: Space, rng: np.random.Generator, **manner: Any) -> None:
        self._space, self._rng = space, rng
        self._model: Bayes | None = None if _tiny(space) else Bayes(space, self._luck(), Manner(**manner))
        self._arms: dict[str, Strategy] = (
            {"bayes": self._model} if self._model else {"random": RandomSearch(space, rng)}
        )
        self._heard: list[Trial] = []
        self._taken: set[Config] = set()
        self._best, self._since, self._turn = float("inf"), 0, 0

    def inform(self, prior: Prior) -> None:
        """Let what other keys showed lead, for as long as it pays."""
        if self._model is None or not prior.sources:
            return
        transfer = Transfer(self._space, self._luck())
        transfer.inform(prior)
        if transfer.informed:
            self._arms = {"transfer": transfer, **self._arms}

    def _luck(self) -> np.random.Generator:
        """A generator of its own for one strategy, so that its turns do not change another's luck."""
        return np.random.default_rng(self._rng.integers(1 << 62))

    def ask(self, count: int) -> Sequence[Config]:
        """Up to `count` fresh configs."""
        return list(islice(iter(self._next, None), count))

    def _next(self) -> Config | None:
        leader = self._leader()
        for name in dict.fromkeys([leader, *self._arms]):
            for _ in range(RETRIES):
                wave = self._arms[name].ask(1)
                if not wave:
                    break
                if wave[0] not in self._taken:
                    self._taken.add(wave[0])
                    return wave[0]
        return None

    def _leader(self) -> str:
        """Whose turn it is: the first strategy's, unless it is stuck; then others have turns, in proportion to need."""
        self._turn += 1
        if self._model is None:
            return "random"
        if self._walks():
            if "anneal" not in self._arms:
                self._arms["anneal"] = Anneal(self._space, self._luck())
                self._arms["anneal"].tell(self._heard)
            return "anneal"
        if "transfer" in self._arms and (self._since <= PATIENCE or self._turn % 2 == 0):
            return "transfer"
        return "bayes"

    def _walks(self) -> bool:
        """Whether it is the walk's turn."""
        if self._since > LOST:
            return self._turn % 8 > 0
        return self._since > STUCK and self._turn % 4 == 0

    def outlook(self) -> Outlook | None:
        """What going on may bring, as the model sees it."""
        return self._model.outlook() if self._model else None

    def tell(self, trials: Sequence[Trial]) -> None:
        """Let everyone learn."""
        self._heard += trials
        for trial in trials:
            self._taken.add(trial.config)
            self._since += 1
            if trial.works and trial.seconds < BETTER * self._best:
                self._since = 0
            if trial.works:
                self._best = min(self._best, trial.seconds)
        for arm in self._arms.values():
            arm.tell(trials)


def _tiny(space: Space) -> bool:
    try:
        return space.combinations <= 1 << 20 and space.size <= TINY
    except SpaceError:
        return False
