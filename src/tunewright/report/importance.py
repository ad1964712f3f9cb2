"""Importance: which knobs mattered in a search, how sure that is, and how much of the times they explain.

A random forest learns the logarithm of the time from most of the trials; the others are then foretold with one knob at
a time shuffled. What that spoils is what the knob matters (Breiman, 2001; scikit-learn keeps the method). It needs no
even cover of the space, so it suits the trials of a search, which crowd around the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, log, sqrt

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import PluginError
from tunewright.model.trial import Trial
from tunewright.spaces.config import Config, Value

FEWEST = 12
"""Trials that ran, below which nothing can be said."""

MOST = 2000
"""Trials a forest learns from; more make it slower, and hardly better."""

SPLITS, HELD_OUT, TREES, SHUFFLES = 8, 0.25, 60, 4

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Importance:
    """How much one knob mattered: its share of all knobs' effects, and where that share may lie."""

    knob: str
    share: float
    low: float
    high: float


def percent(one: Importance) -> str:
    """A share as people write it: `38 % (21 to 56)`."""
    return f"{100 * one.share:.0f} % ({100 * one.low:.0f} to {100 * one.high:.0f})"


@dataclass(frozen=True)
class Importances:
    """Knobs by importance, the first matters most; `explained` is the share of the times' variance they foretell.

    Where little is explained, the shares mean little: the times are noise, or the trials too few.
    """

    knobs: tuple[Importance, ...]
    explained: float
    trials: int
    failures: int

    @classmethod
    def of(cls, trials: Sequence[Trial], seed: int = 0) -> Importances | None:
        """From a journal; None if too few ran, no knob was varied, or all took the same time."""
        ran = [trial for trial in trials if isfinite(trial.seconds)]
        failures = len(trials) - len(ran)
        names, codes = encoded([trial.config for trial in ran])
        times: Numbers = np.log([trial.seconds for trial in ran])
        if len(ran) < FEWEST or not names or np.ptp(times) < log(1 + 1e-9):
            return None
        rng = np.random.default_rng(seed)
        if len(ran) > MOST:
            kept = rng.choice(len(ran), MOST, replace=False)
            codes, times = codes[kept], times[kept]
        effects, explained = _held_out(codes, times, rng)
        knobs = sorted(_shares(names, effects), key=lambda one: (-one.share, one.knob))
        return cls(tuple(knobs), explained, len(times), failures)


def encoded(configs: Sequence[Config]) -> tuple[list[str], Numbers]:
    """The knobs that were varied, and a row of numbers per config: the places of its values among those tried.

    A knob that a variant lacks gets the place in the middle: which variant it is, the variant alone shall tell.
    """
    values: dict[str, set[Value]] = {}
    for config in configs:
        for name, value in config.items():
            values.setdefault(name, set()).add(value)
    names = sorted(name for name, seen in values.items() if len(seen) > 1)
    columns = np.empty((len(configs), len(names)))
    for column, name in zip(columns.T, names, strict=True):
        ordered = sorted(values[name], key=lambda value: (isinstance(value, str), value))
        places = {value: place for place, value in enumerate(ordered)}
        column[:] = [places[config[name]] if name in config else len(ordered) // 2 for config in configs]
    return names, columns


def _held_out(codes: Numbers, times: Numbers, rng: np.random.Generator) -> tuple[Numbers, float]:
    """What shuffling each knob spoils, a row per split; and the share of variance foretold, on trials not learned."""
    try:
        from sklearn.ensemble import RandomForestRegressor  # noqa: PLC0415 - an extra
        from sklearn.inspection import permutation_importance  # noqa: PLC0415
    except ImportError as error:
        raise PluginError(
            "telling which knobs mattered needs scikit-learn; pip install 'tunewright[explain]'"
        ) from error
    aside = max(3, round(HELD_OUT * len(times)))
    effects, missed, spread = [], 0.0, 0.0
    for split in range(SPLITS):
        order = rng.permutation(len(times))
        held, learned = order[:aside], order[aside:]
        forest = RandomForestRegressor(TREES, random_state=split).fit(codes[learned], times[learned])
        missed += float(((forest.predict(codes[held]) - times[held]) ** 2).sum())
        spread += float(((times[learned].mean() - times[held]) ** 2).sum())
        spoiled = permutation_importance(
            forest, codes[held], times[held], scoring="neg_mean_squared_error", n_repeats=SHUFFLES, random_state=split
        )
        effects.append(spoiled.importances_mean)
    return np.array(effects), max(0.0, 1 - missed / spread)


def _shares(names: Sequence[str], effects: Numbers) -> list[Importance]:
    """Effects as shares of their sum, with two standard errors to either side.

    Splits share most of their trials, so their spread alone would promise too much (Nadeau and Bengio, 2003).
    """
    total = max(float(effects.mean(axis=0).clip(0).sum()), 1e-300)
    widening = sqrt(1 / len(effects) + HELD_OUT / (1 - HELD_OUT))
    found = []
    for name, column in zip(names, effects.T / total, strict=True):
        share, error = max(0.0, float(column.mean())), widening * float(column.std(ddof=1))
        found.append(Importance(name, share, max(0.0, share - 2 * error), min(1.0, share + 2 * error)))
    return found
