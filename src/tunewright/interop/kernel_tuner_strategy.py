"""Runs strategies of this library inside Kernel Tuner."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from kernel_tuner.strategies.wrapper import OptAlg

from tunewright.errors import PluginError
from tunewright.model.trial import Failure, Kind, Outcome, Stage, Timing, Trial
from tunewright.ports import plugins
from tunewright.spaces.config import Config
from tunewright.spaces.config_list import rule_from_rows
from tunewright.spaces.rule import Knob
from tunewright.spaces.space import Space


class KernelTunerStrategy(OptAlg):  # type: ignore[misc]
    """A strategy of this library with the interface of Kernel Tuner.

    Use: `tune_kernel(..., strategy=OptAlgWrapper(KernelTunerStrategy("portfolio")))`. Without a `seed`, one is drawn
    from the global `random`, like Kernel Tuner's own strategies do.
    """

    def __init__(self, strategy: str = "portfolio", seed: int | None = None) -> None:
        super().__init__()
        self.constraint_aware = True
        self.strategy, self.seed = strategy, seed

    def __call__(self, func: Any, searchspace: Any) -> tuple[tuple[Any, ...], float]:
        """Ask, evaluate and tell until `func` raises because the budget is spent."""
        if len(func.objective) != 1:
            raise PluginError(f"strategies of Tunewright have one objective, not {len(func.objective)}; name one")
        names = tuple(searchspace.tune_params)
        space = convert_space(
            names, tuple(tuple(values) for values in searchspace.tune_params.values()), tuple(searchspace.list)
        )
        seed = random.getrandbits(64) if self.seed is None else self.seed
        strategy = plugins.load("strategies", self.strategy)(space, np.random.default_rng(seed))
        best: tuple[tuple[Any, ...], float] = ((), float("inf"))
        while configs := strategy.ask(1):
            values = tuple(configs[0][name] for name in names)
            cost = func(values, check_restrictions=False)
            best = min(best, (values, cost), key=lambda pair: pair[1])
            strategy.tell([_trial(configs[0], cost, func)])
        return best


@lru_cache(maxsize=4)
def convert_space(names: Sequence[str], values: Sequence[Sequence[Any]], rows: Sequence[Sequence[Any]]) -> Space:
    """Returns Kernel Tuner's space; its restrictions may be code, so its list of valid configs is used as the rule."""
    knobs = [Knob(name, options) for name, options in zip(names, values, strict=True)]
    configs = [dict(zip(names, row, strict=True)) for row in rows]
    return Space(*knobs, rules=[rule_from_rows(knobs, configs, "Kernel Tuner's restrictions")])


def _trial(config: Config, cost: float, func: Any) -> Trial:
    """Returns the trial of the last evaluation; a cost is milliseconds, or a negated performance metric."""
    result = func.results[-1]
    outcome: Outcome
    if "__error__" in result:
        refused = str(result["__error__"]) == "CompilationFailedConfig"
        stage, kind = (Stage.BUILD, Kind.REFUSED) if refused else (Stage.VERIFY, Kind.RAISED)
        outcome = Failure(stage, kind, str(result["__error__"]))
    else:
        outcome = Timing((cost / 1e3 if cost > 0 else 1.0 / max(-cost, 1e-300),), "kernel tuner")
    built, ran = (float(result.get(key) or 0.0) / 1e3 for key in ("compile_time", "benchmark_time"))
    return Trial(config, outcome, built, ran)
