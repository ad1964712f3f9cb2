"""Transfer: starts from what the same kernel showed on other devices, shapes or toolchains, as far as it holds here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tunewright.model.trial import Trial
from tunewright.ports.strategy import Outlook, Prior, Source
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space
from tunewright.strategies.bayes import Bayes, Manner, scaled
from tunewright.strategies.encoding import Encoding
from tunewright.strategies.moves import cost
from tunewright.strategies.surrogate import Surrogate
from tunewright.strategies.terrain import Rows

MOST_SOURCES = 6
MOST_TRIALS = 250
"""Trials of one source that its model rests on."""

FEWEST_TRIALS = 8
FITTED = 100
"""Trials that a source's hyperparameters are chosen from."""

TRUST = 4.0
"""How many trials' worth of evidence the first guess, that all sources are equally right, counts for."""

LOSING = 16.0
"""Trials without a better config over which the sources lose their say, after half as many of patience."""

OPENING = 4
"""Configs that the sources alone propose."""


class Borrowed:
    """A trend that mixes models of other keys; the weights are settled by this key's own trials."""

    def __init__(self, space: Space, encoding: Encoding, sources: Sequence[Source], rng: np.random.Generator) -> None:
        self._encoding = encoding
        self._models = [model for source in sources if (model := _model(space, encoding, source, rng)) is not None][
            :MOST_SOURCES
        ]
        self.weights = np.full(len(self._models), 1.0 / max(1, len(self._models)))
        self.doubt = 1.0
        self._level, self._deviation = 0.0, 1.0

    def __len__(self) -> int:
        return len(self._models)

    def guesses(self, rows: Rows) -> NDArray[np.float64]:
        """What each source expects at rows, as log time around its own mean."""
        points = self._encoding.points(rows)
        return np.array([model.predict_mean(points) * scale for model, scale in self._models])

    def fit(self, model: Surrogate, rows: Rows, values: NDArray[np.float64], deviation: float) -> None:
        """Weigh the sources by how well they explain the values: generalised least squares, held by the first guess."""
        count = len(self._models)
        guesses = self.guesses(rows) / deviation
        table = model.whiten(np.column_stack([values, np.ones(len(rows)), guesses.T]))
        seen, given = table[:, 0], table[:, 1:]
        hold = np.diag(np.r_[1e-3, np.full(count, TRUST)])
        first = np.r_[0.0, np.full(count, 1.0 / count)]
        weights = np.linalg.solve(given.T @ given + hold, given.T @ seen + hold @ first)
        weights[1:] = np.maximum(weights[1:], 0.0)
        rest = seen - given @ weights
        faith = np.clip(1.5 - _stale(values * deviation) / LOSING, 0.0, 1.0)
        self._level, self.weights, self._deviation = float(weights[0]), faith * weights[1:], deviation
        # The better the sources explain what was tried, the less is left to be unsure of.
        self.doubt = float(np.sqrt(np.clip((rest @ rest + 0.8) / (len(rows) + 4.0), 0.02, 1.0)))
        self.doubt = max(self.doubt, 1.0 - faith)

    def at(self, rows: Rows) -> NDArray[np.float64]:
        """The trend at rows."""
        return self._level + self.weights @ self.guesses(rows) / self._deviation


def _stale(logs: NDArray[np.float64]) -> int:
    """How many trials ago something better by more than half a percent was found."""
    best = np.minimum.accumulate(logs)
    better = np.flatnonzero(best[1:] < best[:-1] - 0.005)
    return len(logs) - 2 - int(better[-1]) if len(better) else len(logs) - 1


def _model(
    space: Space, encoding: Encoding, source: Source, rng: np.random.Generator
) -> tuple[Surrogate, float] | None:
    """A model of a source and the scale of its log times; None if it has too little to say about this space."""
    known = {trial.config: trial for trial in source.trials if trial.config in space}
    trials = list(known.values())
    if len(trials) > MOST_TRIALS:
        trials = [trials[i] for i in sorted(rng.choice(len(trials), MOST_TRIALS, replace=False))]
    logs = np.array([cost(trial) if trial.works else np.nan for trial in trials])
    if (~np.isnan(logs)).sum() < FEWEST_TRIALS:
        return None
    values, _, deviation = scaled(logs, 1.0)
    points = encoding.points(np.array([space.rank(trial.config) for trial in trials]))
    model = Surrogate(encoding.plain, encoding.width)
    some = rng.choice(len(trials), min(FITTED, len(trials)), replace=False)
    model.fit(points[some], values[some])
    model.learn(points, values)
    return model, deviation


class Transfer:
    """Bayesian search around a borrowed trend; without a prior it is plain Bayesian search."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space, self._rng = space, rng
        self._search = Bayes(space, rng)
        self._queue: list[Config] = []
        self.informed = False
        """Whether there is a prior that says something about this space."""

    def inform(self, prior: Prior) -> None:
        """Model the sources, and start from the configs that they find best together."""
        encoding = Encoding(self._space)
        trend = Borrowed(self._space, encoding, prior.sources, self._rng)
        self.informed = len(trend) > 0
        if not self.informed:
            return
        self._search = Bayes(self._space, self._rng, Manner(first=OPENING, early="", later="gna", doubt=1.0), trend)
        rows = self._search.terrain.anywhere(self._rng, whole=True)
        order = np.argsort(trend.guesses(rows).mean(0), kind="stable")
        chosen: list[Rows] = []
        for row in rows[order[:512]]:
            if all((row != other).sum() > 1 for other in chosen):
                chosen.append(row)
            if len(chosen) == OPENING:
                break
        self._queue = [self._space.at(row.tolist()) for row in chosen]

    def ask(self, count: int) -> Sequence[Config]:
        """Up to `count` fresh configs."""
        wave: list[Config] = []
        while self._queue and len(wave) < count:
            if self._search.claim(config := self._queue.pop(0)):
                wave.append(config)
        return [*wave, *self._search.ask(count - len(wave))]

    def outlook(self) -> Outlook | None:
        """What going on may bring."""
        return self._search.outlook()

    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn, and weigh the sources anew."""
        self._search.tell(trials)
