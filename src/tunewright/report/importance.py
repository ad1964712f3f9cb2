"""Importance of knobs in a search, with intervals, and the share of the variance that they explain.

A random forest learns the logarithm of the time from most of the trials and predicts the others, with one knob at a
time shuffled; the loss of accuracy is the importance of the knob (Breiman, 2001). This needs no uniform sample of the
space, so it works for the trials of a search, which crowd around the best.
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

MIN_TRIALS = 12
"""The smallest number of successful trials for an analysis."""

MAX_TRIALS = 2000
"""The largest number of trials a forest learns from; more make it slower and hardly better."""

SPLITS, HELD_OUT, TREES, SHUFFLES = 8, 0.25, 60, 4

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class KnobImportance:
    """The importance of one knob: its share of the effects of all knobs, with an interval."""

    knob: str
    share: float
    low: float
    high: float


def format_share(importance: KnobImportance) -> str:
    """Returns a share with its interval: `38 % (21 to 56)`."""
    return f"{100 * importance.share:.0f} % ({100 * importance.low:.0f} to {100 * importance.high:.0f})"


@dataclass(frozen=True)
class ImportanceReport:
    """Knobs, most important first; `explained` is the share of the variance of the times that they predict.

    If little is explained, the shares mean little: the times are noise, or there are too few trials.
    """

    knobs: tuple[KnobImportance, ...]
    explained: float
    trials: int
    failures: int

    @classmethod
    def of(cls, trials: Sequence[Trial], seed: int = 0) -> ImportanceReport | None:
        """Analyzes trials; returns None if too few succeeded, no knob was varied, or all took the same time."""
        ran = [trial for trial in trials if isfinite(trial.seconds)]
        failures = len(trials) - len(ran)
        names, codes = encode_configs([trial.config for trial in ran])
        times: Numbers = np.log([trial.seconds for trial in ran])
        if len(ran) < MIN_TRIALS or not names or np.ptp(times) < log(1 + 1e-9):
            return None
        rng = np.random.default_rng(seed)
        if len(ran) > MAX_TRIALS:
            kept = rng.choice(len(ran), MAX_TRIALS, replace=False)
            codes, times = codes[kept], times[kept]
        effects, explained = _held_out(codes, times, rng)
        knobs = sorted(_shares(names, effects), key=lambda importance: (-importance.share, importance.knob))
        return cls(tuple(knobs), explained, len(times), failures)


def encode_configs(configs: Sequence[Config]) -> tuple[list[str], Numbers]:
    """Returns the varied knobs, and a row of numbers per config: the ranks of its values among those tried.

    A knob that a variant lacks gets the middle rank, so that only the variant itself identifies it.
    """
    values: dict[str, set[Value]] = {}
    for config in configs:
        for name, value in config.items():
            values.setdefault(name, set()).add(value)
    names = sorted(name for name, seen in values.items() if len(seen) > 1)
    columns = np.empty((len(configs), len(names)))
    for column, name in zip(columns.T, names, strict=True):
        ordered = sorted(values[name], key=lambda value: (isinstance(value, str), value))
        ranks = {value: rank for rank, value in enumerate(ordered)}
        column[:] = [ranks[config[name]] if name in config else len(ordered) // 2 for config in configs]
    return names, columns


def _held_out(codes: Numbers, times: Numbers, rng: np.random.Generator) -> tuple[Numbers, float]:
    """Returns the effect of shuffling each knob, one row per split, and the explained variance of held-out trials."""
    try:
        from sklearn.ensemble import RandomForestRegressor  # noqa: PLC0415 - an extra
        from sklearn.inspection import permutation_importance  # noqa: PLC0415
    except ImportError as error:
        raise PluginError("the importance of knobs needs scikit-learn; pip install 'tunewright[explain]'") from error
    held_out_count = max(3, round(HELD_OUT * len(times)))
    effects, squared_error, variance = [], 0.0, 0.0
    for split in range(SPLITS):
        order = rng.permutation(len(times))
        held, learned = order[:held_out_count], order[held_out_count:]
        forest = RandomForestRegressor(TREES, random_state=split).fit(codes[learned], times[learned])
        squared_error += float(((forest.predict(codes[held]) - times[held]) ** 2).sum())
        variance += float(((times[learned].mean() - times[held]) ** 2).sum())
        permuted = permutation_importance(
            forest, codes[held], times[held], scoring="neg_mean_squared_error", n_repeats=SHUFFLES, random_state=split
        )
        effects.append(permuted.importances_mean)
    return np.array(effects), max(0.0, 1 - squared_error / variance)


def _shares(names: Sequence[str], effects: Numbers) -> list[KnobImportance]:
    """Returns effects as shares of their sum, with two standard errors on either side.

    Splits share most of their trials, so their spread alone would underestimate the error (Nadeau and Bengio, 2003).
    """
    total = max(float(effects.mean(axis=0).clip(0).sum()), 1e-300)
    widening = sqrt(1 / len(effects) + HELD_OUT / (1 - HELD_OUT))
    importances = []
    for name, column in zip(names, effects.T / total, strict=True):
        share, error = max(0.0, float(column.mean())), widening * float(column.std(ddof=1))
        importances.append(KnobImportance(name, share, max(0.0, share - 2 * error), min(1.0, share + 2 * error)))
    return importances
