"""Evaluates configs of a Triton kernel in this process, since a GPU context cannot be forked."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from tunewright.lazy_logging import LazyLogger
from tunewright.measure import race
from tunewright.measure.clock import Sampler
from tunewright.measure.noise import ConditionsMonitor
from tunewright.model.trial import Failure, Incumbent, Kind, Outcome, Stage, Timing, Trial, TrialRequest
from tunewright.spaces.config import Config
from tunewright.stores.file_lock import exclusive_lock
from tunewright.triton.bursts import Burst
from tunewright.triton.configs import ToTritonConfig
from tunewright.triton.snapshot import Snapshot

log = LazyLogger(__name__)

TRIAL_RACE = race.RaceOptions(rounds=12, seconds=0.5)
"""Limits of a trial that is close to the incumbent; others end after two rounds."""

QUANTILES = (0.5, 0.2, 0.8)
"""The quantiles that Triton asks benchmarks for, and shows in `configs_timings`."""

FAILED_TIMINGS = [float("inf")] * 3


class HasHooks(Protocol):
    """What a launch needs of an autotuner."""

    fn: Any
    base_fn: Any
    pre_hook: Callable[..., Any]
    post_hook: Callable[..., Any]


class LaunchCall(NamedTuple):
    """A call to tune for: positional arguments, keyword arguments with the grid, and positional arguments by name."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    named: Mapping[str, Any]


class Candidate:
    """A config bound to a call; calling it launches with all hooks, as Triton benchmarks it."""

    def __init__(self, tuner: HasHooks, call: LaunchCall, config: Any) -> None:
        self._tuner, self._args, self.config = tuner, call.args, config
        self._kwargs = {**call.kwargs, **config.all_kwargs()}
        self._all_args = {**call.named, **self._kwargs}

    def before(self) -> None:
        """Runs the hooks before a launch."""
        if self.config.pre_hook:
            self.config.pre_hook(self._all_args)
        self._tuner.pre_hook(self._all_args)

    def run(self) -> None:
        """Launches without the hooks."""
        try:
            self._tuner.fn.run(*self._args, **self._kwargs)
        except Exception as error:
            self._tuner.post_hook(self._all_args, exception=error)
            raise

    def after(self) -> None:
        """Runs the hook after a launch."""
        self._tuner.post_hook(self._all_args, exception=None)

    def __call__(self) -> None:
        self.before()
        self.run()
        self.after()


class TrialContext(msgspec.Struct, frozen=True):
    """What a trial needs beside its config: tensors to restore, a benchmark if it is not raced, a check of results,
    the lock of the device, and whether to print.
    """

    snapshot: Snapshot
    bench: Callable[..., Any] | None = None
    checker: Callable[[], str | None] | None = None
    device: Path | None = None
    verbose: bool = False


class BenchmarkEvaluator:
    """Evaluates configs on a call, each once by the benchmark of the user or the driver."""

    clock = "do_bench"

    def __init__(self, tuner: HasHooks, call: LaunchCall, to_triton: ToTritonConfig, context: TrialContext) -> None:
        self._tuner, self._call, self._to_triton, self._context = tuner, call, to_triton, context
        self._stage, self._built_at = Stage.BUILD, 0.0
        self.timings: dict[Any, Any] = {}
        self.first_error: Exception | None = None

    def __call__(self, request: TrialRequest) -> Trial:
        """Evaluates one config."""
        config = self._to_triton(request.config)
        self._print(f"Autotuning kernel {self._tuner.base_fn.__name__} with config {config}")
        self._stage, started = Stage.BUILD, time.perf_counter()
        self._built_at = started
        outcome: Outcome
        candidate = Candidate(self._tuner, self._call, config)
        try:
            with exclusive_lock(self._context.device):
                outcome = self._evaluate(candidate, request)
        except Exception as error:  # noqa: BLE001 - whatever a config breaks is data about the config
            self._print(f"Autotuning failed with {error}")
            self.first_error = self.first_error or error
            kind = Kind.REFUSED if self._stage is Stage.BUILD else Kind.RAISED
            outcome = Failure(self._stage, kind, f"{type(error).__name__}: {error}".strip())
        finally:
            self._context.snapshot.restore()
        if isinstance(outcome, Failure):
            self.timings[config] = list(FAILED_TIMINGS)
        ended = time.perf_counter()
        return Trial(request.config, outcome, self._built_at - started, ended - self._built_at, at=time.time())

    def _evaluate(self, candidate: Candidate, request: TrialRequest) -> Outcome:
        assert self._context.bench is not None
        times = self._context.bench(candidate, quantiles=QUANTILES)
        self.timings[candidate.config] = times
        median = float(times[0] if isinstance(times, Sequence | np.ndarray) else times)
        if not isfinite(median):
            return Failure(Stage.TIME, Kind.RAISED, f"the benchmark returned {median} ms, which is not a valid time")
        return Timing((max(1e-3 * median, 1e-12),), self.clock)

    def _print(self, text: str) -> None:
        """Prints as Triton does under TRITON_PRINT_AUTOTUNING."""
        if self._context.verbose:
            sys.stdout.write(f"{text}\n")


class RaceEvaluator(BenchmarkEvaluator):
    """Evaluates configs on a call in bursts that alternate with those of the incumbent, and races the finalists."""

    def __init__(self, tuner: HasHooks, call: LaunchCall, to_triton: ToTritonConfig, context: TrialContext) -> None:
        super().__init__(tuner, call, to_triton, context)
        self._incumbent: tuple[Config, Sampler] | None = None

    def _evaluate(self, candidate: Candidate, request: TrialRequest) -> Outcome:
        snapshot, checker = self._context.snapshot, self._context.checker
        candidate()
        self._built_at = time.perf_counter()
        if checker is not None:
            self._stage = Stage.VERIFY
            if reason := checker():
                return Failure(Stage.VERIFY, Kind.WRONG, reason)
        snapshot.restore()
        self._stage = Stage.TIME
        sampler = self._make_sampler(candidate)
        incumbent = request.incumbent
        is_same = incumbent is None or incumbent.config == request.config
        incumbent_sampler = None if incumbent is None or is_same else self._incumbent_sampler(incumbent)
        if incumbent_sampler is None or incumbent is None:
            timing = Timing(tuple(_sample_alone(sampler)), Burst.clock)
        else:
            result = race.run_race([incumbent_sampler, sampler], TRIAL_RACE)
            timing = Timing(result.standings[1].samples, Burst.clock, result.ratio(1, 0)[0], incumbent.seconds)
        self.timings[candidate.config] = quantiles(timing.samples)
        return timing

    def _make_sampler(self, candidate: Candidate) -> Sampler:
        burst, restore = Burst(candidate), self._context.snapshot.restore

        def sampler() -> float:
            seconds = burst()
            restore()
            return seconds

        return sampler

    def _incumbent_sampler(self, incumbent: Incumbent) -> Sampler | None:
        """Returns a sampler of the incumbent; None if it fails now, which is not the candidate's fault."""
        if self._incumbent is None or self._incumbent[0] != incumbent.config:
            try:
                candidate = Candidate(self._tuner, self._call, self._to_triton(incumbent.config))
                self._incumbent = incumbent.config, self._make_sampler(candidate)
            except Exception as error:  # noqa: BLE001 - the incumbent's, not the candidate's
                log.info("the incumbent %s failed when it was run again: %s", incumbent.config, error)
                return None
        return self._incumbent[1]

    def race(
        self, configs: Sequence[Config], options: race.RaceOptions, protected: Sequence[int] = ()
    ) -> race.Race | None:
        """Races configs that work against each other on this call; None if one fails."""
        monitor = ConditionsMonitor()
        try:
            with exclusive_lock(self._context.device):
                candidates = [Candidate(self._tuner, self._call, self._to_triton(config)) for config in configs]
                samplers = [self._make_sampler(candidate) for candidate in candidates]
                result = race.run_race(samplers, options, protected=protected)
        except Exception as error:  # noqa: BLE001 - they worked when they were tried
            log.warning("the race of the finalists was aborted: %s: %s", type(error).__name__, error)
            return None
        finally:
            self._context.snapshot.restore()
        for config, standing in zip(configs, result.standings, strict=True):
            self.timings[self._to_triton(config)] = quantiles(standing.samples)
        conditions = monitor.stop(result.standings[result.leader].samples)
        return msgspec.structs.replace(result, conditions=conditions, clock=Burst.clock)


def _sample_alone(sampler: Sampler) -> Iterator[float]:
    """Yields samples of a candidate without an incumbent: three, and more while there is time."""
    started = time.perf_counter()
    for number in range(TRIAL_RACE.rounds):
        if number >= 3 and time.perf_counter() - started > TRIAL_RACE.seconds:
            return
        yield sampler()


def quantiles(samples: Sequence[float]) -> list[float]:
    """Returns samples in seconds as Triton shows them: three quantiles in milliseconds."""
    return [float(1e3 * value) for value in np.quantile(samples, QUANTILES)]


def refuse_conflicts(configs: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises ValueError if a call sets what the configs set, as Triton does."""
    if conflicts := sorted({name for config in configs for name in config.kwargs} & kwargs.keys()):
        raise ValueError(
            f"Conflicting meta-parameters: {', '.join(conflicts)}."
            " Make sure that you don't re-define auto-tuned symbols."
        )
