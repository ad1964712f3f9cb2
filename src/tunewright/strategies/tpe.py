"""Tree-structured Parzen estimator (TPE) of Optuna, with an in-memory study."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tunewright.model.trial import Trial
from tunewright.ports import plugins
from tunewright.spaces.config import VARIANT, Config, Value
from tunewright.spaces.space import Knob, Space
from tunewright.strategies.neighborhood import Neighborhood, cost
from tunewright.strategies.random import UntriedConfigs

STARTUP_TRIALS = 10
"""Trials before the estimator is used; until then configs are drawn at random."""

MAX_DRAWS = 2
"""Configs the estimator may draw until one is new; then a new neighbor of the last one is proposed."""


class Tpe:
    """Asks Optuna for the codes of knobs and tells it the log of the times.

    Optuna does not know rules: a config that breaks one, or repeats, is drawn again. A failure counts as worse than any
    time, and pending proposals count as bad (constant liar), so that parallel ones spread.
    """

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._optuna = _import_optuna()
        self._space, self._rng, self._untried, self._neighborhood = (
            space,
            rng,
            UntriedConfigs(space, rng),
            Neighborhood(space, rng),
        )
        self._variants = [variant.name for variant in space.variants]
        self._study = self._quiet_study(int(rng.integers(1 << 31)))
        self._created = self._tried = 0
        self._pending: dict[Config, int] = {}

    def _quiet_study(self, seed: int) -> Any:
        optuna = self._optuna
        before = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                sampler = optuna.samplers.TPESampler(
                    n_startup_trials=1, multivariate=True, group=bool(self._variants), constant_liar=True, seed=seed
                )
            return optuna.create_study(sampler=sampler, storage=optuna.storages.InMemoryStorage())
        finally:
            optuna.logging.set_verbosity(before)

    def ask(self, count: int) -> Sequence[Config]:
        """Returns up to `count` new configs."""
        proposals = (self._propose() or self._draw_random() for _ in range(count))
        return [config for config in proposals if config is not None]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Add every trial to the study, whoever proposed it."""
        for trial in trials:
            if self._untried.mark_tried(trial.config):
                self._tried += 1
                number = self._pending.pop(trial.config, None)
                self._study.tell(self._add_trial(trial.config) if number is None else number, cost(trial))

    def _propose(self) -> Config | None:
        """Returns a config from the estimator or a neighbor of it; None if there are too few trials or none is new."""
        if self._tried < STARTUP_TRIALS:
            return None
        for _ in range(MAX_DRAWS):
            number, config = self._suggest()
            if self._untried.claim(config):
                self._pending[config] = number
                return config
            self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)
        neighbors = self._space.neighbors(config, reach=None)
        order = self._rng.permutation(len(neighbors))
        return self._add_pending(next((neighbors[i] for i in order if self._untried.claim(neighbors[i])), None))

    def _draw_random(self) -> Config | None:
        return self._add_pending(self._untried.draw())

    def _add_pending(self, config: Config | None) -> Config | None:
        """Add a config that the study did not suggest as a running trial."""
        if config is not None:
            self._pending[config] = self._add_trial(config)
        return config

    def _suggest(self) -> tuple[int, Config]:
        """Returns a running trial of the study and its config, which may break rules."""
        trial = self._study.ask()
        self._created += 1
        settings: dict[str, Value] = {}
        if self._variants:
            settings[VARIANT] = trial.suggest_categorical(VARIANT, self._variants)
        for name, knob in self._named_knobs(settings):
            last = len(knob) - 1
            code = (
                trial.suggest_int(name, 0, last)
                if _is_ordered(knob)
                else trial.suggest_categorical(name, range(last + 1))
            )
            settings[knob.name] = knob.values[code]
        return trial.number, Config(settings)

    def _add_trial(self, config: Config) -> int:
        """Add a running trial for a config. Returns its number in the study."""
        kinds, codes, distributions = self._optuna.distributions, dict[str, Any](), dict[str, Any]()
        if self._variants:
            codes[VARIANT], distributions[VARIANT] = config[VARIANT], kinds.CategoricalDistribution(self._variants)
        for name, knob in self._named_knobs(config):
            last = len(knob) - 1
            codes[name] = knob.codes[config[knob.name]]
            distributions[name] = (
                kinds.IntDistribution(0, last) if _is_ordered(knob) else kinds.CategoricalDistribution(range(last + 1))
            )
        running = self._optuna.trial.TrialState.RUNNING
        self._study.add_trial(self._optuna.trial.create_trial(state=running, params=codes, distributions=distributions))
        self._created += 1
        return self._created - 1  # a study numbers its trials in order

    def _named_knobs(self, settings: Mapping[str, Value]) -> list[tuple[str, Knob]]:
        """Returns the knobs of a variant; its own get a prefix, because variants may share a name with other values."""
        own = len(self._space.knobs)
        knobs = self._neighborhood.knobs(settings)
        return [(k.name if i < own else f"{settings[VARIANT]}.{k.name}", k) for i, k in enumerate(knobs)]


def _is_ordered(knob: Knob) -> bool:
    """Returns whether the order of the knob's values matters."""
    return len(knob) > 2 and (knob.range is not None or not any(isinstance(value, str) for value in knob.values))


def _import_optuna() -> Any:
    try:
        import optuna  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise plugins.missing("strategies", "tpe", error) from error
    return optuna
