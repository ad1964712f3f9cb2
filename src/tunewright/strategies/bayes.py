"""Bayesian optimization: a Gaussian process over log time, with expected improvement as acquisition function."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import nan
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunewright.model.trial import Trial
from tunewright.ports.strategy import Forecast
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space
from tunewright.strategies.candidates import SAMPLE_SIZE, Rows, candidates_for
from tunewright.strategies.encoding import FAR, NEAR, VALUE, Encoding
from tunewright.strategies.neighborhood import cost
from tunewright.strategies.surrogate import Surrogate, log_improvement
from tunewright.strategies.tree_model import Prediction, TreeModel

REFIT_AT = (3, 5, 6, 8, 10, 13, 16, 20, 25, 32, 40, 50, 63, 80, 100, 130, 165, 210, 270, 340, 430, 540)
"""Numbers of trials at which hyperparameters are refitted."""

MIN_FORECAST_TRIALS = 16
"""Trials before the first forecast."""

TOP_CANDIDATES = 256
"""Most promising configs, from which the remaining regret is estimated."""

LEAST_AFTER = 40
"""Trials before a config is proposed for its predicted time alone: with fewer, predictions are too often wrong."""

MIN_NOISE = 0.1
"""Noise, in standard deviations of the log times, from which on such configs are proposed.

Where times are noisy, the expected improvement on a lucky time is large only where little is known.
"""

MAX_FIT_TRIALS = 256
"""Trials the model is fitted to: if there are more, the best and the latest."""


class BayesOptions(msgspec.Struct, frozen=True):
    """Options of a Bayesian search."""

    first: int = 2
    """Configs drawn at random before the model is used."""
    early: str = "na" * 6
    """Moves of the first proposals: one knob changed (n), any knobs by one step (a), from the whole space (g)."""
    later: str = "nagnam"
    """Moves of later proposals, in turn. With enough trials of noisy times, m is the least predicted time among
    the candidates of g; else it is the same as g."""
    near: float = NEAR
    far: float = FAR
    """Prior length scales of single knobs, and of columns made of several."""
    value: float = VALUE
    """Prior length scale of having another value of a knob, however near."""
    slope: float = 0.5
    """Expected cost, in standard deviations, of each knob that is not a power of two."""
    uncertainty_scale: float = 2.0
    """Factor on the model's standard deviation: with few trials it is overconfident."""
    reach: float = 2.0
    """Log times are capped this far above the median, in units of the distance from the best to the median."""
    trees: bool = True
    """Whether randomized trees predict beside the Gaussian process: proposals from the whole space are made by both."""
    elite: int = 3
    """Best configs whose neighbors are among the candidates of both models."""


class MeanFunction(Protocol):
    """Prior mean of the model."""

    uncertainty_scale: float
    """Factor on the model's standard deviation given this mean."""

    def fit(self, model: Surrogate, rows: Rows, values: NDArray[np.float64], deviation: float) -> None:
        """Fit the mean to values at rows; `deviation` is what the values were divided by."""
        ...

    def at(self, rows: Rows) -> NDArray[np.float64]:
        """Returns the mean at rows, on the scale of the values."""
        ...


class PowerOfTwoMean:
    """Prior mean that expects powers of two to be faster; a few trials overrule it."""

    uncertainty_scale = 1.0

    def __init__(self, encoding: Encoding, slope: float) -> None:
        self._encoding, self._slope = encoding, slope

    def fit(self, model: Surrogate, rows: Rows, values: NDArray[np.float64], deviation: float) -> None:
        """Nothing to fit."""

    def at(self, rows: Rows) -> NDArray[np.float64]:
        """Returns the slope times the number of knobs that are not a power of two."""
        return self._slope * self._encoding.count_uneven(rows)


class Bayes:
    """Proposes the config with the largest expected improvement, mostly close to the best so far."""

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        options: BayesOptions | None = None,
        mean: MeanFunction | None = None,
    ) -> None:
        self._space, self._rng, self._options = space, rng, options or BayesOptions()
        self.candidates = candidates_for(space)
        self._encoding = Encoding(space)
        lengths = self._encoding.lengths(self._options.near, self._options.far, self._options.value)
        self._model = Surrogate(lengths, self._encoding.owners)
        self._rows: list[Rows] = []
        self._logs: list[float] = []  # nan: it failed
        self._pending: dict[Config, Rows] = {}
        self._fitted = 0
        self._mean = mean or PowerOfTwoMean(self._encoding, self._options.slope)
        self._trees = TreeModel(self._encoding.plain) if self._options.trees else None
        self._expected: dict[Config, tuple[Prediction, Prediction]] = {}
        self._to_compare: list[tuple[int, tuple[Prediction, Prediction]]] = []

    def ask(self, count: int) -> Sequence[Config]:
        """Returns up to `count` new configs."""
        return list(islice(iter(self._next, None), count))

    def _next(self) -> Config | None:
        move = self._move()
        rows = self._candidates(move)
        if not len(rows):
            rows = self.candidates.sample(self._rng)
        if not len(rows):
            return None
        row = self._choose(rows, move)
        config = self._space.at(row.tolist())
        if self._trees and self._trees.is_fitted:
            mean, spread = self._predict(row[None], self._options.uncertainty_scale)
            tree_mean, tree_spread = self._trees.predict(self._encoding.points(row[None]))
            process = Prediction(float(mean[0]), float(spread[0]))
            self._expected[config] = process, Prediction(float(tree_mean[0]), float(tree_spread[0]))
        self.claim(config)
        return config

    def claim(self, config: Config) -> bool:
        """Mark `config` as proposed. Returns whether it was new."""
        if not self.candidates.mark_seen(config):
            return False
        self._pending[config] = np.array(self._space.rank(config), dtype=np.int32)
        return True

    @property
    def _is_random(self) -> bool:
        return len(self._logs) + len(self._pending) < self._options.first or bool(np.isnan(self._logs).all())

    def _move(self) -> str:
        if self._is_random:
            return "g"
        proposed = len(self._logs) + len(self._pending) - self._options.first
        early, later = self._options.early, self._options.later
        move = early[proposed] if proposed < len(early) else later[proposed % len(later)]
        by_prediction = len(self._logs) >= LEAST_AFTER and self._model.noise >= MIN_NOISE
        return "g" if move == "m" and not by_prediction else move

    def _candidates(self, move: str) -> Rows:
        if move in "gm":
            sample = self.candidates.sample(self._rng)
            return np.concatenate([*self._around_best(), sample]) if self._trees and self._trees.weight > 0 else sample
        best = self._rows[int(np.nanargmin(self._logs))]
        return self.candidates.adjacent(best, self._rng) if move == "a" else self.candidates.neighbors(best)

    def _around_best(self) -> list[Rows]:
        order = np.argsort(np.nan_to_num(self._logs, nan=np.inf), kind="stable")[: self._options.elite]
        return [self.candidates.neighbors(self._rows[i]) for i in order if not np.isnan(self._logs[i])]

    def _choose(self, rows: Rows, move: str) -> Rows:
        """Returns the row of the least predicted time (m) or of the largest expected improvement."""
        if self._is_random:
            return np.asarray(rows[self._rng.integers(len(rows))])
        best = self._update_model()
        if move == "m":
            return np.asarray(rows[int(self._expected_values(rows).argmin())])
        scores = self._scores(rows, best, self._options.uncertainty_scale)
        if len(rows) >= SAMPLE_SIZE:
            rows, scores = self._climb(rows, scores, best)
        if move == "g" and self._trees and self._trees.weight > 0:
            scores = self._trees.combine(scores, self._encoding.points(rows), best)
        return np.asarray(rows[int(scores.argmax())])

    def _scores(self, rows: Rows, best: float, uncertainty_scale: float) -> NDArray[np.float64]:
        return log_improvement(*self._predict(rows, uncertainty_scale), best)

    def _predict(self, rows: Rows, uncertainty_scale: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns mean and standard deviation of the process."""
        mean, spread = self._model.predict(self._encoding.points(rows))
        return mean + self._mean.at(rows), spread * self._mean.uncertainty_scale * uncertainty_scale

    def _expected_values(self, rows: Rows) -> NDArray[np.float64]:
        """Returns the values that both models expect, each counting as much as it deserves."""
        points = self._encoding.points(rows)
        process = self._model.predict_mean(points) + self._mean.at(rows)
        if self._trees is None or not self._trees.is_fitted:
            return np.asarray(process)
        weight = self._trees.weight_of_mean
        return np.asarray((1 - weight) * process + weight * self._trees.predict(points)[0])

    def _climb(self, rows: Rows, scores: NDArray[np.float64], best: float) -> tuple[Rows, NDArray[np.float64]]:
        """Adds rows by hill-climbing from the best of a sample that covers only part of the space."""
        for _ in range(4):
            top = int(scores.argmax())
            if not len(neighbors := self.candidates.neighbors(rows[top])):
                break
            neighbor_scores = self._scores(neighbors, best, self._options.uncertainty_scale)
            if neighbor_scores.max() <= scores[top]:
                break
            rows, scores = np.concatenate([rows, neighbors]), np.concatenate([scores, neighbor_scores])
        return rows, scores

    def _update_model(self) -> float:
        """Condition the model on all trials. Returns the best value so far, on the model's scale."""
        selected = _select_informative(self._logs)
        values, best, deviation = standardize(np.array(self._logs)[selected], self._options.reach)
        rows = np.array([self._rows[i] for i in selected])
        points = self._encoding.points(rows)
        if sum(n <= len(values) for n in REFIT_AT) > self._fitted:
            self._fitted = sum(n <= len(values) for n in REFIT_AT)
            self._model.fit(points, values)
        self._model.learn(points, values)
        self._mean.fit(self._model, rows, values, deviation)
        if self._trees:
            for index, expected in self._to_compare:
                if len(place := np.flatnonzero(selected == index)):
                    self._trees.compare(*expected, float(values[place[0]]), self._model.noise)
            self._to_compare.clear()
            self._trees.learn(points, values)
        values = values - self._mean.at(rows)
        self._model.revise(values)
        if self._pending:
            # Pending trials are assumed to come out as predicted (a kriging believer), so that proposals spread.
            pending = self._encoding.points(np.array(list(self._pending.values())))
            predicted, _ = self._model.predict(pending)
            self._model.learn(np.concatenate([points, pending]), np.concatenate([values, predicted]))
        return best

    def forecast(self) -> Forecast | None:
        """Returns the expected gain and regret, from candidates near the best config and from the whole space."""
        if self._is_random or len(self._logs) < MIN_FORECAST_TRIALS:
            return None
        row = self._rows[int(np.nanargmin(self._logs))]
        candidates = self.candidates
        rows = np.concatenate(
            [candidates.neighbors(row), candidates.adjacent(row, self._rng), candidates.sample(self._rng)]
        )
        if not len(rows):
            return Forecast(0.0, 0.0)
        best = self._update_model()
        scores = self._scores(rows, best, 1.0)
        *_, deviation = standardize(np.array(self._logs)[_select_informative(self._logs)], self._options.reach)
        likely = rows[np.argsort(-scores, kind="stable")[:TOP_CANDIDATES]]
        draws = self._model.draw(self._encoding.points(likely), self._rng, 128) + self._mean.at(likely)
        regret = np.maximum(best - draws.min(1), 0.0) * deviation
        return Forecast(float(-np.expm1(-np.exp(scores.max()) * deviation)), float((-np.expm1(-regret)).mean()))

    def tell(self, trials: Sequence[Trial]) -> None:
        """Record trials; failures count as slow."""
        for trial in trials:
            row = self._pending.pop(trial.config, None)
            if row is None:
                if trial.config not in self._space:
                    continue
                row = np.array(self._space.rank(trial.config), dtype=np.int32)
                self.candidates.mark_seen(trial.config)
            if expected := self._expected.pop(trial.config, None):
                self._to_compare.append((len(self._rows), expected))
            self._rows.append(row)
            self._logs.append(cost(trial) if trial.works else nan)


def standardize(logs: NDArray[Any], reach: float) -> tuple[NDArray[np.float64], float, float]:
    """Returns log times with mean 0 and deviation 1, the best of them, and the original deviation.

    Times far above the median are capped, and failures count as capped: how slow a config is exactly says nothing
    about where the best is.
    """
    works = logs[~np.isnan(logs)]
    best, median = float(works.min()), float(np.median(works))
    bad = max(float(works.max()), best + 0.5)
    capped = np.minimum(np.where(np.isnan(logs), bad, logs), median + (median - best) * reach + 0.3)
    mean, deviation = capped.mean(), max(float(capped.std()), 1e-3)
    return (capped - mean) / deviation, float((best - mean) / deviation), deviation


def _select_informative(logs: Sequence[float]) -> NDArray[np.int64]:
    """Returns the indices of trials to learn from: all, or the best and the latest."""
    if len(logs) <= MAX_FIT_TRIALS:
        return np.arange(len(logs))
    best = np.argsort(np.nan_to_num(logs, nan=np.inf), kind="stable")[: MAX_FIT_TRIALS // 2]
    latest = np.setdiff1d(np.arange(len(logs)), best)[-MAX_FIT_TRIALS // 2 :]
    return np.sort(np.concatenate([best, latest]))
