"""Bayesian search: a Gaussian process over log time says where an improvement is likeliest, near the best and afar."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import nan
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunewright.model.trial import Trial
from tunewright.ports.strategy import Outlook
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space
from tunewright.strategies.encoding import Encoding
from tunewright.strategies.moves import cost
from tunewright.strategies.surrogate import Surrogate, log_improvement
from tunewright.strategies.terrain import SPREAD, Rows, terrain_of

REFIT = (3, 5, 6, 8, 10, 13, 16, 20, 25, 32, 40, 50, 63, 80, 100, 130, 165, 210, 270, 340, 430, 540)
"""Numbers of trials at which hyperparameters are chosen anew."""

FORESIGHT = 16
"""Trials before which the model does not say what to expect."""

LIKELY = 256
"""The most promising configs, among which the best that remains is looked for."""

MOST_LEARNT = 256
"""Trials the model rests on: the best and the latest, where there are more."""


class Manner(msgspec.Struct, frozen=True):
    """How a Bayesian search behaves; the defaults are what ships."""

    first: int = 2
    """Configs drawn at random before the model has a say."""
    early: str = "na" * 6
    """Moves of the first proposals: near the best (n), one step in any knobs around it (a), anywhere (g)."""
    later: str = "nag"
    """Moves from then on, in turn."""
    near: float = 1.0
    far: float = 2.0
    """Length scales expected of single knobs, and of features made of several."""
    slope: float = 0.5
    """By how many deviations a knob set to no power of two is expected to cost."""
    doubt: float = 2.0
    """By how much what the model is unsure of counts more than it says: a model of few trials is too sure of itself."""
    reach: float = 2.0
    """How much slower than the median counts as equally slow, in units of how much faster the best is."""


class Trend(Protocol):
    """What the model expects before it has seen anything."""

    doubt: float
    """How much of the model's uncertainty is left once the trend is known."""

    def fit(self, model: Surrogate, rows: Rows, values: NDArray[np.float64], deviation: float) -> None:
        """Settle on a trend, given values at rows and the deviation they were divided by."""
        ...

    def at(self, rows: Rows) -> NDArray[np.float64]:
        """The trend at rows, on the scale of the values."""
        ...


class Evenness:
    """The one thing expected of every kernel: powers of two tend to be faster. A few trials overrule it."""

    doubt = 1.0

    def __init__(self, encoding: Encoding, slope: float) -> None:
        self._encoding, self._slope = encoding, slope

    def fit(self, model: Surrogate, rows: Rows, values: NDArray[np.float64], deviation: float) -> None:
        """Nothing to settle."""

    def at(self, rows: Rows) -> NDArray[np.float64]:
        """Slower by the slope for each knob that is set to something else."""
        return self._slope * self._encoding.uneven(rows)


class Bayes:
    """Proposes where the expected improvement is largest, mostly close to the best config so far."""

    def __init__(
        self, space: Space, rng: np.random.Generator, manner: Manner | None = None, trend: Trend | None = None
    ) -> None:
        self._space, self._rng, self._manner = space, rng, manner or Manner()
        self.terrain = terrain_of(space)
        self._encoding = Encoding(space)
        self._model = Surrogate(
            self._encoding.plain, self._encoding.width, near=self._manner.near, far=self._manner.far
        )
        self._rows: list[Rows] = []
        self._logs: list[float] = []  # nan: it failed
        self._pending: dict[Config, Rows] = {}
        self._fitted = 0
        self._trend = trend or Evenness(self._encoding, self._manner.slope)

    def ask(self, count: int) -> Sequence[Config]:
        """Up to `count` fresh configs."""
        return list(islice(iter(self._next, None), count))

    def _next(self) -> Config | None:
        rows = self._candidates(self._move())
        if not len(rows):
            rows = self.terrain.anywhere(self._rng)
        if not len(rows):
            return None
        config = self._space.at(self._choose(rows).tolist())
        self.claim(config)
        return config

    def claim(self, config: Config) -> bool:
        """Take `config` as proposed; whether it was still fresh."""
        if not self.terrain.note(config):
            return False
        self._pending[config] = np.array(self._space.rank(config), dtype=np.int32)
        return True

    @property
    def _blind(self) -> bool:
        return len(self._logs) + len(self._pending) < self._manner.first or bool(np.isnan(self._logs).all())

    def _move(self) -> str:
        if self._blind:
            return "g"
        asked = len(self._logs) + len(self._pending) - self._manner.first
        early, later = self._manner.early, self._manner.later
        return early[asked] if asked < len(early) else later[asked % len(later)]

    def _candidates(self, move: str) -> Rows:
        if move == "g":
            return self.terrain.anywhere(self._rng)
        best = self._rows[int(np.nanargmin(self._logs))]
        return self.terrain.near(best) if move == "n" else self.terrain.around(best, self._rng)

    def _choose(self, rows: Rows) -> Rows:
        if self._blind:
            return np.asarray(rows[self._rng.integers(len(rows))])
        best = self._learn()
        scores = self._scores(rows, best, self._manner.doubt)
        if len(rows) == SPREAD:
            rows, scores = self._climbed(rows, scores, best)
        return np.asarray(rows[int(scores.argmax())])

    def _scores(self, rows: Rows, best: float, doubt: float) -> NDArray[np.float64]:
        mean, spread = self._model.predict(self._encoding.points(rows))
        return log_improvement(mean + self._trend.at(rows), spread * self._trend.doubt * doubt, best)

    def _climbed(self, rows: Rows, scores: NDArray[np.float64], best: float) -> tuple[Rows, NDArray[np.float64]]:
        """Where a glance sees a part of the space only, walk uphill from the best it saw."""
        for _ in range(4):
            here = int(scores.argmax())
            if not len(around := self.terrain.near(rows[here])):
                break
            there = self._scores(around, best, self._manner.doubt)
            if there.max() <= scores[here]:
                break
            rows, scores = around, there
        return rows, scores

    def _learn(self) -> float:
        """Bring the model up to date; the best value so far, on its scale."""
        kept = _telling(self._logs)
        values, best, deviation = scaled(np.array(self._logs)[kept], self._manner.reach)
        rows = np.array([self._rows[i] for i in kept])
        points = self._encoding.points(rows)
        if sum(n <= len(values) for n in REFIT) > self._fitted:
            self._fitted = sum(n <= len(values) for n in REFIT)
            self._model.fit(points, values)
        self._model.learn(points, values)
        self._trend.fit(self._model, rows, values, deviation)
        values = values - self._trend.at(rows)
        self._model.revise(values)
        if self._pending:
            # What is under way is taken to come out as predicted: sure, but no news.
            waiting = self._encoding.points(np.array(list(self._pending.values())))
            guess, _ = self._model.predict(waiting)
            self._model.learn(np.concatenate([points, waiting]), np.concatenate([values, guess]))
        return best

    def outlook(self) -> Outlook | None:
        """What the model expects of going on: near the best config and all over the space."""
        if self._blind or len(self._logs) < FORESIGHT:
            return None
        row = self._rows[int(np.nanargmin(self._logs))]
        terrain = self.terrain
        rows = np.concatenate([terrain.near(row), terrain.around(row, self._rng), terrain.anywhere(self._rng)])
        if not len(rows):
            return Outlook(0.0, 0.0)
        best = self._learn()
        scores = self._scores(rows, best, 1.0)
        *_, deviation = scaled(np.array(self._logs)[_telling(self._logs)], self._manner.reach)
        likely = rows[np.argsort(-scores, kind="stable")[:LIKELY]]
        draws = self._model.draw(self._encoding.points(likely), self._rng, 128) + self._trend.at(likely)
        regret = np.maximum(best - draws.min(1), 0.0) * deviation
        return Outlook(float(-np.expm1(-np.exp(scores.max()) * deviation)), float((-np.expm1(-regret)).mean()))

    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn what became of configs; failures count as slow."""
        for trial in trials:
            row = self._pending.pop(trial.config, None)
            if row is None:
                if trial.config not in self._space:
                    continue
                row = np.array(self._space.rank(trial.config), dtype=np.int32)
                self.terrain.note(trial.config)
            self._rows.append(row)
            self._logs.append(cost(trial) if trial.works else nan)


def scaled(logs: NDArray[Any], reach: float) -> tuple[NDArray[np.float64], float, float]:
    """Log times with mean 0 and deviation 1, the best of them, and the deviation they had.

    Far slower than the median is as bad as failed: how bad exactly says nothing about where the best is.
    """
    works = logs[~np.isnan(logs)]
    best, median = float(works.min()), float(np.median(works))
    bad = max(float(works.max()), best + 0.5)
    capped = np.minimum(np.where(np.isnan(logs), bad, logs), median + (median - best) * reach + 0.3)
    mean, deviation = capped.mean(), max(float(capped.std()), 1e-3)
    return (capped - mean) / deviation, float((best - mean) / deviation), deviation


def _telling(logs: Sequence[float]) -> NDArray[np.int64]:
    """Which trials to learn from: all, or the best half of them and the latest."""
    if len(logs) <= MOST_LEARNT:
        return np.arange(len(logs))
    best = np.argsort(np.nan_to_num(logs, nan=np.inf), kind="stable")[: MOST_LEARNT // 2]
    latest = np.setdiff1d(np.arange(len(logs)), best)[-MOST_LEARNT // 2 :]
    return np.sort(np.concatenate([best, latest]))
