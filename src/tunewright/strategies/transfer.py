"""Transfer learning from trials of the same kernel on other devices, shapes or toolchains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tunewright.model.trial import Trial
from tunewright.ports.strategy import Forecast, Prior, Source
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space
from tunewright.strategies.bayes import Bayes, BayesOptions, standardize
from tunewright.strategies.candidates import Rows
from tunewright.strategies.encoding import Encoding
from tunewright.strategies.neighborhood import cost
from tunewright.strategies.surrogate import Surrogate

MAX_SOURCES = 6
MAX_SOURCE_TRIALS = 250
"""Maximum of trials that the model of one source uses."""

MIN_SOURCE_TRIALS = 8
FIT_TRIALS = 100
"""Trials that the hyperparameters of a source are fitted to."""

PRIOR_TRIALS = 4.0
"""Weight, in trials, of the prior that all sources are equally good."""

DECAY_TRIALS = 16.0
"""Trials without improvement over which the sources lose their weight, after half as many at full weight."""

OPENING_CONFIGS = 4
"""Configs proposed from the sources alone."""


class SourceMean:
    """Prior mean that mixes models of other keys, weighted by the trials of this key."""

    def __init__(self, space: Space, encoding: Encoding, sources: Sequence[Source], rng: np.random.Generator) -> None:
        self._encoding = encoding
        self._models = [
            model for source in sources if (model := _fit_source(space, encoding, source, rng)) is not None
        ][:MAX_SOURCES]
        self.weights = np.full(len(self._models), 1.0 / max(1, len(self._models)))
        self.uncertainty_scale = 1.0
        self._level, self._deviation = 0.0, 1.0

    def __len__(self) -> int:
        return len(self._models)

    def predictions(self, rows: Rows) -> NDArray[np.float64]:
        """Returns what each source predicts at rows, as log time around its own mean."""
        points = self._encoding.points(rows)
        return np.array([model.predict_mean(points) * scale for model, scale in self._models])

    def fit(self, model: Surrogate, rows: Rows, values: NDArray[np.float64], deviation: float) -> None:
        """Weight the sources by generalized least squares, regularized toward equal weights."""
        count = len(self._models)
        predictions = self.predictions(rows) / deviation
        table = model.whiten(np.column_stack([values, np.ones(len(rows)), predictions.T]))
        observed, design = table[:, 0], table[:, 1:]
        penalty = np.diag(np.r_[1e-3, np.full(count, PRIOR_TRIALS)])
        equal = np.r_[0.0, np.full(count, 1.0 / count)]
        weights = np.linalg.solve(design.T @ design + penalty, design.T @ observed + penalty @ equal)
        weights[1:] = np.maximum(weights[1:], 0.0)
        residual = observed - design @ weights
        trust = np.clip(1.5 - _trials_since_improvement(values * deviation) / DECAY_TRIALS, 0.0, 1.0)
        self._level, self.weights, self._deviation = float(weights[0]), trust * weights[1:], deviation
        # The better the sources explain the trials, the smaller the remaining uncertainty.
        self.uncertainty_scale = float(np.sqrt(np.clip((residual @ residual + 0.8) / (len(rows) + 4.0), 0.02, 1.0)))
        self.uncertainty_scale = max(self.uncertainty_scale, 1.0 - trust)

    def at(self, rows: Rows) -> NDArray[np.float64]:
        """Returns the mean at rows."""
        return self._level + self.weights @ self.predictions(rows) / self._deviation


def _trials_since_improvement(logs: NDArray[np.float64]) -> int:
    """Returns the trials since the last improvement of more than half a percent."""
    best = np.minimum.accumulate(logs)
    better = np.flatnonzero(best[1:] < best[:-1] - 0.005)
    return len(logs) - 2 - int(better[-1]) if len(better) else len(logs) - 1


def _fit_source(
    space: Space, encoding: Encoding, source: Source, rng: np.random.Generator
) -> tuple[Surrogate, float] | None:
    """Returns a model of a source and the scale of its log times; None if it has too few trials in this space."""
    by_config = {trial.config: trial for trial in source.trials if trial.config in space}
    trials = list(by_config.values())
    if len(trials) > MAX_SOURCE_TRIALS:
        trials = [trials[i] for i in sorted(rng.choice(len(trials), MAX_SOURCE_TRIALS, replace=False))]
    logs = np.array([cost(trial) if trial.works else np.nan for trial in trials])
    if (~np.isnan(logs)).sum() < MIN_SOURCE_TRIALS:
        return None
    values, _, deviation = standardize(logs, 1.0)
    points = encoding.points(np.array([space.rank(trial.config) for trial in trials]))
    model = Surrogate(encoding.lengths(), encoding.owners)
    subset = rng.choice(len(trials), min(FIT_TRIALS, len(trials)), replace=False)
    model.fit(points[subset], values[subset])
    model.learn(points, values)
    return model, deviation


class Transfer:
    """Bayesian search with a prior mean from other keys; without a prior, plain Bayesian search."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space, self._rng = space, rng
        self._search = Bayes(space, rng)
        self._queue: list[Config] = []
        self.informed = False
        """Whether a prior has enough trials in this space."""

    def inform(self, prior: Prior) -> None:
        """Model the sources, and start from the configs they predict to be best on average."""
        encoding = Encoding(self._space)
        mean = SourceMean(self._space, encoding, prior.sources, self._rng)
        self.informed = len(mean) > 0
        if not self.informed:
            return
        self._search = Bayes(
            self._space,
            self._rng,
            BayesOptions(first=OPENING_CONFIGS, early="", later="gna", trees=False, uncertainty_scale=1.0),
            mean,
        )
        rows = self._search.candidates.sample(self._rng, whole=True)
        order = np.argsort(mean.predictions(rows).mean(0), kind="stable")
        chosen: list[Rows] = []
        for row in rows[order[:512]]:
            if all((row != chosen_row).sum() > 1 for chosen_row in chosen):
                chosen.append(row)
            if len(chosen) == OPENING_CONFIGS:
                break
        self._queue = [self._space.at(row.tolist()) for row in chosen]

    def ask(self, count: int) -> Sequence[Config]:
        """Returns up to `count` new configs."""
        proposals: list[Config] = []
        while self._queue and len(proposals) < count:
            if self._search.claim(config := self._queue.pop(0)):
                proposals.append(config)
        return [*proposals, *self._search.ask(count - len(proposals))]

    def forecast(self) -> Forecast | None:
        """Returns the forecast of the Bayesian search."""
        return self._search.forecast()

    def tell(self, trials: Sequence[Trial]) -> None:
        """Record trials; the sources are reweighted at the next proposal."""
        self._search.tell(trials)
