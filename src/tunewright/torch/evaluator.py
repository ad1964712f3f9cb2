"""Evaluation of configs in this process, since a graph under compilation cannot be sent to another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tunewright.lazy_logging import LazyLogger
from tunewright.measure.clock import HostTimer, Restore, Sampler, make_sampler, use_same_clock
from tunewright.measure.evaluator import CONFIRMING_RACE, QUICK_RACE, WALL_ROUNDS
from tunewright.measure.noise import ConditionsMonitor
from tunewright.measure.race import Race, RaceOptions, run_race
from tunewright.model.trial import (
    CLEARLY_FASTER,
    Failure,
    Incumbent,
    Kind,
    Outcome,
    Stage,
    Timing,
    Trial,
    TrialRequest,
    median,
)  # fmt: skip
from tunewright.spaces.config import Config
from tunewright.stores.file_lock import exclusive_lock

log = LazyLogger(__name__)

Launch = Callable[[], Any]
"""A candidate bound to its arguments; returns its result."""


class EvaluationOptions(msgspec.Struct, frozen=True):
    """How candidates are timed.

    `restore` puts arguments back, `lock` is the file that one process at a time holds while it measures. A sample
    lasts at least `sample_seconds`, and a race `time_factor` times as long as usual.
    """

    threads: int = 1
    restore: Restore | None = None
    lock: Path | None = None
    sample_seconds: float = 0.0
    time_factor: float = 1.0


def sustained_sampler(sample: Sampler, seconds: float) -> Sampler:
    """Returns a sampler that runs for `seconds` and discards the first half.

    By then weights are in the caches as they are for a model that runs alone; candidates that share weights would
    otherwise warm the caches for each other.
    """

    def sustained() -> float:
        end, samples = time.perf_counter() + seconds, [sample()]
        while time.perf_counter() < end:
            samples.append(sample())
        return median(samples[len(samples) // 2 :])

    return sustained


class TimedLaunch:
    """A built config: its launch, timer and sampler."""

    def __init__(self, launch: Launch, options: EvaluationOptions) -> None:
        self.launch = launch
        self.timer = HostTimer(launch, options.threads)
        self._options = options
        self._sampler: Sampler | None = None

    @property
    def sampler(self) -> Sampler:
        """Samples its time; calibrated on first use."""
        if self._sampler is None:
            sample = make_sampler(self.timer, self._options.restore)
            self._sampler = sustained_sampler(sample, self._options.sample_seconds)
        return self._sampler


class InProcessEvaluator:
    """Evaluates configs: `build` makes them callable, `validate` returns what is wrong with a result, or None."""

    def __init__(
        self,
        build: Callable[[Config], Launch],
        validate: Callable[[Any], str | None],
        options: EvaluationOptions,
    ) -> None:
        self._build, self._validate, self._options = build, validate, options
        self._launches: dict[Config, TimedLaunch] = {}

    def __call__(self, request: TrialRequest) -> Trial:
        """Evaluates one config."""
        stage, started, built = Stage.BUILD, time.perf_counter(), None
        outcome: Outcome
        try:
            candidate = self._launch(request.config)
            built = time.perf_counter()
            with exclusive_lock(self._options.lock):
                stage = Stage.VERIFY
                if problem := self._validate(self._fresh_result(candidate)):
                    outcome = Failure(stage, Kind.WRONG, problem)
                else:
                    stage = Stage.TIME
                    outcome = self._time(candidate, request)
        except Exception as error:  # noqa: BLE001 - whatever a config breaks is data about the config
            kind = Kind.REFUSED if stage is Stage.BUILD else Kind.RAISED
            outcome = Failure(stage, kind, f"{type(error).__name__}: {error}".strip().partition("\n")[0])
        if isinstance(outcome, Failure):
            self._launches.pop(request.config, None)
        ended = time.perf_counter()
        return Trial(request.config, outcome, (built or ended) - started, ended - (built or ended), at=time.time())

    def _launch(self, config: Config) -> TimedLaunch:
        if config not in self._launches:
            self._launches[config] = TimedLaunch(self._build(config), self._options)
        return self._launches[config]

    def _fresh_result(self, candidate: TimedLaunch) -> Any:
        """Returns a result from restored arguments."""
        if self._options.restore:
            self._options.restore()
        return candidate.launch()

    def _time(self, candidate: TimedLaunch, request: TrialRequest) -> Timing:
        incumbent = request.incumbent
        runner = self._incumbent_launch(incumbent) if incumbent and incumbent.config != request.config else None
        if runner is None or incumbent is None:
            samples = [candidate.sampler() for _ in range(3)]
            return Timing(tuple(samples), candidate.timer.clock)
        samplers = [runner.sampler, candidate.sampler]
        clock = use_same_clock([runner.timer, candidate.timer])
        result = run_race(samplers, self._race_options(QUICK_RACE, clock))
        ratio = result.ratio(1, 0)[0]
        if ratio < CLEARLY_FASTER:  # confirmed by a longer, independent race, so that luck does not win
            result = run_race(samplers, self._race_options(CONFIRMING_RACE, clock))
            ratio, _, high = result.ratio(1, 0)
            ratio = ratio if high < CLEARLY_FASTER else max(ratio, CLEARLY_FASTER)
        return Timing(result.standings[1].samples, clock, ratio, incumbent.seconds)

    def _incumbent_launch(self, incumbent: Incumbent) -> TimedLaunch | None:
        """Returns the launch of the incumbent; None if it cannot be built now, which is not the candidate's fault."""
        try:
            return self._launch(incumbent.config)
        except Exception as error:  # noqa: BLE001 - the incumbent's error, not the candidate's
            log.info("the incumbent %s cannot be built again: %s", incumbent.config, error)
            return None

    def race(self, configs: Sequence[Config], options: RaceOptions, protected: Sequence[int] = ()) -> Race | None:
        """Races working configs against each other; None if one fails."""
        monitor = ConditionsMonitor()
        try:
            candidates = [self._launch(config) for config in configs]
            with exclusive_lock(self._options.lock):
                samplers = [candidate.sampler for candidate in candidates]
                clock = use_same_clock([candidate.timer for candidate in candidates])
                result = run_race(samplers, self._race_options(options, clock), protected=protected)
        except Exception as error:  # noqa: BLE001 - they worked in their trials
            log.warning("the race of the finalists failed: %s: %s", type(error).__name__, error)
            return None
        conditions = monitor.stop(result.standings[result.leader].samples)
        return msgspec.structs.replace(result, conditions=conditions, clock=clock)

    def _race_options(self, usual: RaceOptions, clock: str) -> RaceOptions:
        """Returns race options with more time; by the wall clock gross losers get more rounds."""
        factor, gross = self._options.time_factor, WALL_ROUNDS if clock == "wall" else usual.gross
        return msgspec.structs.replace(usual, seconds=factor * usual.seconds, span=factor * usual.span, gross=gross)
