"""Search with a learned cost model that ranks the proposals of an evolutionary search."""

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
from tunewright.strategies.neighborhood import Neighborhood, cost
from tunewright.strategies.random import UntriedConfigs

RANDOM_TRIALS = 8
"""Trials drawn at random before the first model."""

BATCH = 4
"""Configs proposed between two fits of the model."""

RANDOM_SHARE = 0.08
"""Share of proposals drawn at random."""

CHILDREN, GENERATIONS = 64, 3
"""Children per generation, and generations; later ones descend from the configs that the model ranks best."""

ELITE = 16

BOOSTING_ROUNDS = 60
LIGHTGBM_PARAMS: dict[str, Any] = {
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

MAX_FIT_TRIALS = 1000
"""Maximum of trials a model is fitted to, half of them the best; bounds the cost of a refit."""


class Learned:
    """Boosted trees rank configs, an evolutionary search over them proposes a batch, as in TVM.

    Failures rank after every config that works.
    """

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._lightgbm = _import_lightgbm()
        self._rng, self._untried, self._neighborhood = rng, UntriedConfigs(space, rng), Neighborhood(space, rng)
        self._space = space
        self._encoding = TreeFeatures(space)
        self._costs: dict[Config, float] = {}
        self._rows: list[list[float]] = []
        self._best = Population(self._neighborhood, rng, ELITE)
        self._queue: list[Config] = []

    def ask(self, count: int) -> Sequence[Config]:
        """Returns up to `count` new configs."""
        proposals = (self._next_ranked() or self._untried.draw() for _ in range(count))
        return [config for config in proposals if config is not None]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Record trials for the next fit."""
        for trial in trials:
            if self._untried.mark_tried(trial.config) and trial.config not in self._costs:
                self._costs[trial.config] = cost(trial)
                self._rows.append(self._encoding.row(trial.config))
                self._best.add(trial.config, cost(trial))

    def _next_ranked(self) -> Config | None:
        """Returns the next config of the batch; None if it is to be drawn at random."""
        if len(self._costs) < RANDOM_TRIALS or len(self._best) < 2 or self._rng.random() < RANDOM_SHARE:
            return None
        for _ in range(2):
            while self._queue:
                if self._untried.claim(config := self._queue.pop()):
                    return config
            self._queue = self._plan()
        return None

    def _plan(self) -> list[Config]:
        """Returns a batch of new configs that the model ranks best, best last."""
        model = self._fit()
        scores: dict[Config, float] = {}
        parents, children = self._best, self._space.sample(self._rng, CHILDREN // 4)
        for _ in range(GENERATIONS):
            children += [parents.child() for _ in range(CHILDREN)]
            new = [config for config in dict.fromkeys(children) if config not in scores and config in self._untried]
            if new:
                ranks = model.predict(np.array([self._encoding.row(config) for config in new]), num_threads=1)
                scores.update(zip(new, (-ranks).tolist(), strict=True))
            if len(scores) < 2:
                break
            parents, children = Population(self._neighborhood, self._rng, ELITE), []
            for config, score in scores.items():
                parents.add(config, score)
        return sorted(scores, key=scores.__getitem__)[:BATCH][::-1]

    def _fit(self) -> Any:
        """Returns boosted trees that rank the trials; as only order counts, failures need no time."""
        costs = np.array(list(self._costs.values()))
        order = np.argsort(costs, kind="stable")
        if len(order) > MAX_FIT_TRIALS:
            best, rest = np.split(order, [MAX_FIT_TRIALS // 2])
            order = np.concatenate([best, rest[:: -(-len(rest) // (MAX_FIT_TRIALS // 2))]])
        _, ranks = np.unique(costs[order], return_inverse=True)
        params = LIGHTGBM_PARAMS | {
            "seed": int(self._rng.integers(1 << 31)),
            "label_gain": list(range(len(order))),
            "lambdarank_truncation_level": len(order),
        }
        rows = np.array([self._rows[i] for i in order])
        data = self._lightgbm.Dataset(rows, ranks.max() - ranks, group=[len(order)], params=params)
        return self._lightgbm.train(params, data, BOOSTING_ROUNDS, keep_training_booster=True)


class TreeFeatures:
    """Encoding of configs for trees: one column for each variant, then those of every knob.

    A numeric knob has one column, log2 if all values are positive, else the rank; a text knob has one for each value.
    -1 means that the variant has no such knob.
    """

    def __init__(self, space: Space) -> None:
        self._variants = [variant.name for variant in space.variants]
        owned: list[tuple[Knob, str | None]] = [(knob, None) for knob in space.knobs]
        owned += [(knob, variant.name) for variant in space.variants for knob in variant.knobs]
        self._slots = [(knob.name, owner, _cells(knob)) for knob, owner in owned if len(knob) > 1]

    def row(self, config: Config) -> list[float]:
        """Returns the row of a config."""
        variant = config.get(VARIANT)
        row = [float(variant == name) for name in self._variants]
        for name, owner, cells in self._slots:
            present = owner is None or owner == variant
            row += cells[config[name]] if present else [-1.0] * len(next(iter(cells.values())))
        return row


def _cells(knob: Knob) -> dict[Value, list[float]]:
    """Returns the columns of each value."""
    numbers = [float(value) for value in knob.values if not isinstance(value, str)]
    if len(numbers) == len(knob) and min(numbers) > 0:
        return {value: [log2(float(value))] for value in knob.values}
    if len(numbers) == len(knob) or len(knob) == 2:
        return {value: [float(code)] for value, code in knob.codes.items()}
    return {value: [float(code == column) for column in range(len(knob))] for value, code in knob.codes.items()}


def _import_lightgbm() -> Any:
    try:
        import lightgbm  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise plugins.missing("strategies", "learned", error) from error
    return lightgbm
