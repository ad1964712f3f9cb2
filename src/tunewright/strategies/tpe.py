"""TPE: the tree-structured Parzen estimator of Optuna, its study kept in memory."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tunewright.model.trial import Trial
from tunewright.ports import plugins
from tunewright.spaces.config import VARIANT, Config, Value
from tunewright.spaces.space import Knob, Space
from tunewright.strategies.moves import Moves, cost
from tunewright.strategies.random import Untried

STARTUP = 10
"""Trials before the estimator is asked; until then configs are drawn at random, which knows the rules."""

DRAWS = 2
"""Configs the estimator may draw until one is fresh; the last is replaced by a fresh neighbour of it."""


class Tpe:
    """Asks Optuna for the codes of knobs, and tells it the log of the times.

    A draw that breaks a rule or repeats is drawn again: Optuna knows no rules. A failure counts as worse than any time,
    and proposals in flight as bad until they are told of (a constant liar), so that parallel ones spread.
    """

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._optuna = _optuna()
        self._space, self._rng, self._untried, self._moves = space, rng, Untried(space, rng), Moves(space, rng)
        self._variants = [variant.name for variant in space.variants]
        self._study = self._quiet_study(int(rng.integers(1 << 31)))
        self._made = self._told = 0
        self._flying: dict[Config, int] = {}

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
        """Up to `count` fresh configs."""
        wave = (self._estimated() or self._drawn() for _ in range(count))
        return [config for config in wave if config is not None]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Every trial goes to the study, whoever proposed it."""
        for trial in trials:
            if self._untried.strike(trial.config):
                self._told += 1
                number = self._flying.pop(trial.config, None)
                self._study.tell(self._added(trial.config) if number is None else number, cost(trial))

    def _estimated(self) -> Config | None:
        """What the estimator proposes, or a neighbour of it; None if it knows too little or nothing near is fresh."""
        if self._told < STARTUP:
            return None
        for _ in range(DRAWS):
            number, config = self._suggested()
            if self._untried.claim(config):
                self._flying[config] = number
                return config
            self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)
        near = self._space.neighbors(config, reach=None)
        fresh = (near[place] for place in self._rng.permutation(len(near)) if self._untried.claim(near[place]))
        return self._flown(next(fresh, None))

    def _drawn(self) -> Config | None:
        return self._flown(self._untried.draw())

    def _flown(self, config: Config | None) -> Config | None:
        """A config that the study did not suggest, made known to it."""
        if config is not None:
            self._flying[config] = self._added(config)
        return config

    def _suggested(self) -> tuple[int, Config]:
        """A running trial of the study and its config, which may break rules."""
        trial = self._study.ask()
        self._made += 1
        settings: dict[str, Value] = {}
        if self._variants:
            settings[VARIANT] = trial.suggest_categorical(VARIANT, self._variants)
        for name, knob in self._named(settings):
            last = len(knob) - 1
            code = (
                trial.suggest_int(name, 0, last) if _ordered(knob) else trial.suggest_categorical(name, range(last + 1))
            )
            settings[knob.name] = knob.values[code]
        return trial.number, Config(settings)

    def _added(self, config: Config) -> int:
        """The number of a running trial of the study, made for a config."""
        offer, codes, offered = self._optuna.distributions, dict[str, Any](), dict[str, Any]()
        if self._variants:
            codes[VARIANT], offered[VARIANT] = config[VARIANT], offer.CategoricalDistribution(self._variants)
        for name, knob in self._named(config):
            last = len(knob) - 1
            codes[name] = knob.codes[config[knob.name]]
            offered[name] = (
                offer.IntDistribution(0, last) if _ordered(knob) else offer.CategoricalDistribution(range(last + 1))
            )
        running = self._optuna.trial.TrialState.RUNNING
        self._study.add_trial(self._optuna.trial.create_trial(state=running, params=codes, distributions=offered))
        self._made += 1
        return self._made - 1  # a study numbers its trials in the order they are made

    def _named(self, settings: Mapping[str, Value]) -> list[tuple[str, Knob]]:
        """The knobs of a variant, its own by a name of their own: another variant's may offer other values."""
        own = len(self._space.knobs)
        knobs = self._moves.knobs(settings)
        return [(k.name if i < own else f"{settings[VARIANT]}.{k.name}", k) for i, k in enumerate(knobs)]


def _ordered(knob: Knob) -> bool:
    """Whether being near means anything for its values."""
    return len(knob) > 2 and not any(isinstance(value, str) for value in knob.values)


def _optuna() -> Any:
    try:
        import optuna  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise plugins.missing("strategies", "tpe", error) from error
    return optuna
