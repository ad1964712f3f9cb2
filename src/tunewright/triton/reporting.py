"""Reports a decision where Triton does: to its listener, its file of timings, and the terminal."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from tunewright.model.decision import Decision, Problem
from tunewright.model.trial import Timing
from tunewright.session import Session
from tunewright.triton import adapter
from tunewright.triton.configs import ConfigSpace
from tunewright.triton.observed_evaluator import FAILED_TIMINGS, quantiles


class Reported(Protocol):
    """What a report needs of an autotuner."""

    fn: Any
    base_fn: Any
    bench_time: float
    cache_results: bool
    configs_timings: dict[Any, Any]


def report_decision(
    tuner: Reported, configs: ConfigSpace, decision: Decision, triton_key: Any, *, is_hit: bool
) -> None:
    """Reports a decision, which was stored before if `is_hit`."""
    config, listener = configs.to_triton(decision.config), adapter.autotune_listener()
    listed = () if is_hit or not tuner.cache_results else configs.triton_configs
    if listed and not any(other.pre_hook for other in listed):
        timings = {other: tuner.configs_timings[other] for other in listed if other in tuner.configs_timings}
        adapter.write_timings(tuner.fn, triton_key, listed, timings)
    if listener is not None:
        listener(
            fn=adapter.innermost(tuner.fn),
            key=triton_key,
            best_config=config,
            configs_timings=tuner.configs_timings,
            duration=None if is_hit else tuner.bench_time,
            cache_hit=is_hit,
        )
    if adapter.is_verbose() and not is_hit:
        sys.stdout.write(
            f"Triton autotuning for function {tuner.base_fn.__name__},\nwith key as {triton_key},\n"
            f"finished after {tuner.bench_time:.2f}s,\nbest config selected: {config};\n"
        )


def recorded_timings(session: Session, problem: Problem, configs: ConfigSpace) -> dict[Any, Any]:
    """Returns the timings of stored trials behind a decision."""
    trials = [trial for trial in session.store.trials(problem.key) if trial.config in configs.space]
    return {
        configs.to_triton(trial.config): quantiles(trial.outcome.samples)
        if isinstance(trial.outcome, Timing)
        else list(FAILED_TIMINGS)
        for trial in trials
    }
