"""Learned search: a cost model ranks what evolution proposes; the best ranked are tried, and the model learns."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Any

import numpy as np

from tunewright.model.trial import Trial
from tunewright.ports import plugins
from tunewright.spaces.config import VARIANT, Config, Value
from tunewright.spaces.space import Knob, Space
from tunewright.strategies.evolve import Population
from tunewright.strategies.moves import Moves, cost
from tunewright.strategies.random import Untried

FIRST = 8
"""Trials drawn at random before there is anything to learn from."""

BATCH = 4
"""Configs proposed by one state of the model; more would be cheaper, and staler."""

EXPLORED = 0.08
"""The share of proposals drawn at random, whatever the model says."""

BROOD, GENERATIONS = 64, 3
"""Candidates bred in one generation, and how many generations: the later ones from what the model likes."""

ELITE = 16

ROUNDS = 60
SETTINGS: dict[str, Any] = {
    "objective": "lambdarank",
    "learning_rate": 0.1,
    "num_leaves": 15,
    "min_data_in_leaf": 2,
    "min_data_in_bin": 1,
    "feature_fraction": 0.7,
    "num_threads": 1,
    "deterministic": True,
    "force_col_wise": True,
    "verbosity": -1,
}

MOST_ROWS = 1000
"""Trials learned from at most, half of them the best: what bounds the cost of a late refit."""


class Learned:
    """TVM's recipe: boosted trees rank configs, an evolutionary search over them proposes a few, and again.

    Failures are learned from as slower than anything that works.
    """

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._boosting = _lightgbm()
        self._rng, self._untried, self._moves = rng, Untried(space, rng), Moves(space, rng)
        self._space = space
        self._encoding = Features(space)
        self._costs: dict[Config, float] = {}
        self._rows: list[list[float]] = []
        self._best = Population(self._moves, rng, ELITE)
        self._queue: list[Config] = []

    def ask(self, count: int) -> Sequence[Config]:
        """Up to `count` fresh configs."""
        wave = (self._ranked() or self._untried.draw() for _ in range(count))
        return [config for config in wave if config is not None]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Learnt from when the next batch is planned."""
        for trial in trials:
            if self._untried.strike(trial.config) and trial.config not in self._costs:
                self._costs[trial.config] = cost(trial)
                self._rows.append(self._encoding.row(trial.config))
                self._best.add(trial.config, cost(trial))

    def _ranked(self) -> Config | None:
        """The next of the batch; None where chance is to choose, or there is nothing to learn from yet."""
        if len(self._costs) < FIRST or len(self._best) < 2 or self._rng.random() < EXPLORED:
            return None
        for _ in range(2):
            while self._queue:
                if self._untried.claim(config := self._queue.pop()):
                    return config
            self._queue = self._plan()
        return None

    def _plan(self) -> list[Config]:
        """Fresh configs that the model likes, the best last."""
        model = self._fitted()
        scores: dict[Config, float] = {}
        parents, brood = self._best, self._space.sample(self._rng, BROOD // 4)
        for _ in range(GENERATIONS):
            brood += [parents.child() for _ in range(BROOD)]
            fresh = [config for config in dict.fromkeys(brood) if config not in scores and config in self._untried]
            if fresh:
                liked = model.predict(np.array([self._encoding.row(config) for config in fresh]), num_threads=1)
                scores.update(zip(fresh, (-liked).tolist(), strict=True))
            if len(scores) < 2:
                break
            parents, brood = Population(self._moves, self._rng, ELITE), []
            for config, score in scores.items():
                parents.add(config, score)
        return sorted(scores, key=scores.__getitem__)[:BATCH][::-1]

    def _fitted(self) -> Any:
        """Boosted trees that put trials in order; only order counts, so a failure needs no made-up time to be last."""
        costs = np.array(list(self._costs.values()))
        order = np.argsort(costs, kind="stable")
        if len(order) > MOST_ROWS:
            best, rest = np.split(order, [MOST_ROWS // 2])
            order = np.concatenate([best, rest[:: -(-len(rest) // (MOST_ROWS // 2))]])
        _, places = np.unique(costs[order], return_inverse=True)
        settings = SETTINGS | {
            "seed": int(self._rng.integers(1 << 31)),
            "label_gain": list(range(len(order))),
            "lambdarank_truncation_level": len(order),
        }
        rows = np.array([self._rows[i] for i in order])
        data = self._boosting.Dataset(rows, places.max() - places, group=[len(order)], params=settings)
        return self._boosting.train(settings, data, ROUNDS, keep_training_booster=True)


class Features:
    """Configs as rows of numbers that trees can split: a column a variant, then those of every knob.

    A number is one column, its log2 if all are positive, else its rank; a text is a column a value. -1: no such knob.
    """

    def __init__(self, space: Space) -> None:
        self._variants = [variant.name for variant in space.variants]
        owned: list[tuple[Knob, str | None]] = [(knob, None) for knob in space.knobs]
        owned += [(knob, variant.name) for variant in space.variants for knob in variant.knobs]
        self._slots = [(knob.name, owner, _cells(knob)) for knob, owner in owned if len(knob) > 1]

    def row(self, config: Config) -> list[float]:
        """One config."""
        variant = config.get(VARIANT)
        row = [float(variant == name) for name in self._variants]
        for name, owner, cells in self._slots:
            here = owner is None or owner == variant
            row += cells[config[name]] if here else [-1.0] * len(next(iter(cells.values())))
        return row


def _cells(knob: Knob) -> dict[Value, list[float]]:
    """The columns of each value."""
    numbers = [float(value) for value in knob.values if not isinstance(value, str)]
    if len(numbers) == len(knob) and min(numbers) > 0:
        return {value: [log2(float(value))] for value in knob.values}
    if len(numbers) == len(knob) or len(knob) == 2:
        return {value: [float(code)] for value, code in knob.codes.items()}
    return {value: [float(code == place) for place in range(len(knob))] for value, code in knob.codes.items()}


def _lightgbm() -> Any:
    try:
        import lightgbm  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise plugins.missing("strategies", "learned", error) from error
    return lightgbm
