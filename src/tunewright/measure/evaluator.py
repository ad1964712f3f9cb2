"""The evaluator: builds, verifies and times configs of any workload. A bad config is a result, not an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

import msgspec

from tunewright.lazy_logging import LazyLogger
from tunewright.measure import race
from tunewright.measure.audit import AuditedSampler, AuditSchedule, HurriedSchedule, audited_draws, new_draw
from tunewright.measure.clock import use_clock, use_same_clock
from tunewright.measure.failures import FinalistFailed, blaming, failure_of, naming
from tunewright.measure.noise import ConditionsMonitor
from tunewright.model.trial import (
    CLEARLY_FASTER,
    Failure,
    Incumbent,
    Outcome,
    Stage,
    Timing,
    Trial,
    TrialRequest,
)
from tunewright.ports.candidate import Candidate, Workload, WrongResult
from tunewright.spaces.config import Config
from tunewright.stores.file_lock import exclusive_lock

log = LazyLogger(__name__)

StageListener = Callable[[Stage], None]

QUICK_RACE = race.RaceOptions(rounds=12, seconds=0.5, gross=2)
"""The race of a candidate against the incumbent; a clear loser leaves after two rounds."""

CONFIRMING_RACE = race.RaceOptions(rounds=16, seconds=1.0, fixed=True)
"""The second race of a candidate that seems faster than the incumbent."""

FEW_LAUNCHES, MANY_LAUNCHES = 4, 64
"""Launches whose results are checked after the samples of a trial; after those of the finalists that are left."""

NEEDED_LAUNCHES = 16
"""Launches that a trial usually takes at least. If there is no time for them, results are checked where they are timed
and nowhere else, and the first launch is the only sample if there is no time for another."""

HURRIED_SAMPLES = 5
"""Samples of a trial for which there is little time."""

WALL_ROUNDS = 4
"""Rounds in which a candidate must be grossly slower by the wall clock, which other programs may disturb twice."""


class Limits(msgspec.Struct, frozen=True):
    """The limits of one trial: seconds to build, seconds to run, bytes of memory and of each file."""

    build: float = 120.0
    run: float = 60.0
    memory: int = 4 << 30


class EvaluatorOptions(msgspec.Struct, frozen=True):
    """A race takes `time_factor` times as long as usual; without `verified`, results are only checked before timing."""

    time_factor: float = 1.0
    verified: bool = True


def _ignore_stage(stage: Stage) -> None: ...


class Evaluator:
    """Evaluates configs of one workload in this process; `target` is where another process finds the kernel."""

    def __init__(
        self, workload: Workload, options: EvaluatorOptions | None = None, *, target: str | None = None
    ) -> None:
        self.workload, self.options, self.target = workload, options or EvaluatorOptions(), target
        self._incumbent: _Incumbent | None = None
        self._compiles_late: bool | None = None
        self._audited_draws = audited_draws()
        self.on_sample: Callable[[], None] = lambda: None

    def prepare(self) -> None:
        """Computes what is needed before the first trial. Raises BackendError if that fails."""
        self.workload.prepare()

    @property
    def oracle_seconds(self) -> float:
        """About how long the expected results of new contents take."""
        return self.workload.oracle_seconds

    @property
    def nbytes(self) -> int:
        """Bytes of all arguments, as far as they are known."""
        return int(getattr(self.workload, "nbytes", 0))

    @property
    def cases(self) -> Sequence[Any]:
        """The inputs of the workload, as far as they are known."""
        return tuple(getattr(self.workload, "cases", ()))

    def build_artifacts(self, config: Config) -> Any:
        """Builds a config, and does not run it."""
        return self.workload.build(config)

    def __call__(self, request: TrialRequest, on_stage: StageListener = _ignore_stage) -> Trial:
        """Tries one config; `on_stage` is called as each stage begins."""
        self.workload.prepare()
        stage, started, built, fingerprint, waited = Stage.BUILD, time.perf_counter(), None, "", 0.0
        outcome: Outcome
        try:
            on_stage(stage)
            artifact, incumbent = self.workload.build(request.config), self._build_incumbent(request)
            built = time.perf_counter()
            on_stage(stage := Stage.WAIT)
            with exclusive_lock(self.workload.lock):
                waited = time.perf_counter() - built
                on_stage(stage := Stage.LOAD)
                candidate = self.workload.load(request.config, artifact)
                on_stage(stage := Stage.VERIFY)
                usual, began = request.allowance.usual if request.allowance else inf, time.perf_counter()
                mismatch, fingerprint = candidate.verify(self._verify_seconds(request))
                if mismatch:
                    raise WrongResult(mismatch)
                on_stage(stage := Stage.TIME)
                if self._compiled_late(candidate, time.perf_counter() - began, usual):
                    began = time.perf_counter()
                if NEEDED_LAUNCHES * candidate.launch_seconds > usual:
                    outcome = self._time_in_a_hurry(candidate, began + usual)
                else:
                    outcome = self._time(candidate, incumbent)
        except Exception as error:  # noqa: BLE001 - whatever a config breaks is data about the config
            outcome = failure_of(error, stage, request.config)
        ended = time.perf_counter()
        build_seconds, run_seconds = (built or ended) - started, ended - (built or ended) - waited
        metrics = {} if self._compiles_late is None else {"compiles_late": float(self._compiles_late)}
        return Trial(request.config, outcome, build_seconds, run_seconds, metrics, time.time(), fingerprint)

    def _verify_seconds(self, request: TrialRequest) -> float:
        """Returns how long two launches may take before one must do.

        Until a first launch has been seen to take as long as a second, it may contain a compilation. Then a third of
        what is left of the budget may be spent to find out, and all of it on the default. Where configs do compile, a
        second launch takes little.
        """
        if (allowance := request.allowance) is None:
            return inf
        if self._compiles_late is None:
            self._compiles_late = allowance.compiles_late
        if self._compiles_late is not None:
            return inf if self._compiles_late else allowance.usual
        if request.essential and self._may_compile:  # what its worker took to start is gone
            return max(allowance.usual, allowance.until - time.time() if allowance.until else allowance.most)
        return max(allowance.usual, allowance.most / 3)

    @property
    def _may_compile(self) -> bool:
        """Whether a first launch may contain a compilation, as far as that is known."""
        return bool(getattr(self.workload, "may_compile", False)) and self._compiles_late is not False

    def _compiled_late(self, candidate: Candidate, verify_seconds: float, usual: float) -> bool:
        """Returns and remembers whether a verification took long because its first launch did, and the second not."""
        if verify_seconds <= usual or _was_launched_once(candidate):
            return False
        late = verify_seconds > 3 * candidate.launch_seconds
        self._compiles_late = late or bool(self._compiles_late)
        return late

    def _time(self, candidate: Candidate, incumbent: _Incumbent | None) -> Timing:
        """Times a config against the incumbent, or alone if there is none; a slow one gets few samples."""
        sampler = self._sampler(candidate, self._schedule())
        rival = None if incumbent is None else self._load_incumbent(incumbent)
        if rival is None or incumbent is None:
            timing = self._time_alone(sampler)
        else:
            timing = self._time_against(rival, incumbent, sampler)
        sampler.finish(FEW_LAUNCHES)
        return timing

    def _time_in_a_hurry(self, candidate: Candidate, deadline: float) -> Timing:
        """Takes samples until the deadline, each of which is checked; if there is no time for any, the first launch."""
        candidate.hurry()
        schedule = self._hurried_schedule(candidate.launch_seconds, self._audited_draws[0])
        sampler, samples = self._sampler(candidate, schedule), list[float]()
        while len(samples) < HURRIED_SAMPLES and time.perf_counter() + candidate.launch_seconds < deadline:
            samples.append(sampler())
        if not samples:
            seconds, clock = candidate.first_sample
            return Timing((seconds,), clock, is_first=self._may_compile and _was_launched_once(candidate))
        sampler.finish(1)
        return Timing(tuple(samples), use_same_clock(candidate.timers))

    def _sampler(self, candidate: Candidate, schedule: AuditSchedule, *, audited: bool = True) -> AuditedSampler:
        return AuditedSampler(candidate, schedule, self.on_sample, audited=audited)

    def _schedule(self, *, always_new: bool = False) -> AuditSchedule:
        draws = audited_draws() if always_new else self._audited_draws
        return AuditSchedule(self.workload.oracle_seconds, draws, always_new=always_new, verified=self.options.verified)

    def _hurried_schedule(self, launch_seconds: float, last: int) -> AuditSchedule:
        return HurriedSchedule(self.workload.oracle_seconds, launch_seconds, last, verified=self.options.verified)

    def _time_against(self, rival: Candidate, incumbent: _Incumbent, sampler: AuditedSampler) -> Timing:
        clocks = [timer.clock for timer in rival.timers]
        rival_sampler = self._sampler(rival, sampler.schedule, audited=False)
        samplers: list[Callable[[], float]] = [blaming(incumbent.config, rival_sampler), sampler]
        clock = use_same_clock([*rival.timers, *sampler.candidate.timers])
        result = race.run_race(samplers, self._race_options(QUICK_RACE, clock))
        ratio = result.ratio(1, 0)[0]
        if ratio < CLEARLY_FASTER:
            # Of many candidates some seem faster by luck. If one became the incumbent, later times would be relative
            # to it and sink from one incumbent to the next. An independent, longer race decides.
            first, result = result, race.run_race(samplers, self._race_options(CONFIRMING_RACE, clock))
            ratio, _, high = result.ratio(1, 0)
            # A slow pair runs too few rounds for a confidence interval: then all rounds of both races must agree.
            if min(high, max(first.max_ratio(1, 0), result.max_ratio(1, 0))) >= CLEARLY_FASTER:
                ratio = max(ratio, CLEARLY_FASTER)
        for timer, own in zip(rival.timers, clocks, strict=True):
            if timer.clock != own:
                use_clock([timer], own)  # it switched to this candidate's clock, which the next may not need
        return Timing(result.standings[1].samples, clock, ratio, incumbent.seconds)

    def _time_alone(self, sampler: AuditedSampler) -> Timing:
        """Takes as many samples as a race among equals would."""
        began, samples = time.perf_counter(), [sampler()]
        limit = self._race_options(QUICK_RACE, "")
        while len(samples) < 3 or (len(samples) < limit.rounds and time.perf_counter() - began < limit.seconds):
            samples.append(sampler())
        return Timing(tuple(samples), use_same_clock(sampler.candidate.timers))

    def _race_options(self, usual: race.RaceOptions, clock: str, check_seconds: float = 0.0) -> race.RaceOptions:
        """Returns the options for a clock, within the limit: by the wall clock, gross losers run more rounds."""
        factor, gross = self.options.time_factor, WALL_ROUNDS if clock == "wall" else usual.gross
        left = max(0.0, usual.until - time.time() - check_seconds) if usual.until else inf
        seconds, span = (min(left, factor * seconds) for seconds in (usual.seconds, usual.span))
        return msgspec.structs.replace(usual, seconds=seconds, span=span, gross=gross)

    def _build_incumbent(self, request: TrialRequest) -> _Incumbent | None:
        """Returns the incumbent, built; it is reused while it stays the incumbent."""
        incumbent = request.incumbent
        if incumbent is None or incumbent.config == request.config:
            return None
        if self._incumbent is None or self._incumbent.config != incumbent.config:
            self._incumbent = _Incumbent(incumbent, self.workload.build(incumbent.config))
        self._incumbent.seconds = incumbent.seconds
        return self._incumbent

    def _load_incumbent(self, incumbent: _Incumbent) -> Candidate | None:
        """Returns the incumbent, ready; None if it fails or is wrong here, which is not the candidate's fault."""
        if incumbent.candidate is None:
            try:
                candidate = self.workload.load(incumbent.config, incumbent.artifact)
                if mismatch := candidate.verify()[0]:
                    raise WrongResult(mismatch)
                candidate.sample(0, audited=False)
                incumbent.candidate = candidate
            except Exception as error:  # noqa: BLE001 - a failure of the incumbent, not of the candidate
                failure = failure_of(error, Stage.LOAD, incumbent.config)
                log.info("%s: the incumbent %s fails here: %s", self.workload.name, incumbent.config, failure.reason)
        return incumbent.candidate

    def race(self, configs: Sequence[Config], options: race.RaceOptions, protected: Sequence[int] = ()) -> race.Race:
        """Races configs on new arguments; one that is wrong or fails now is dropped, and named in `failures`."""
        finalists = _Finalists(self.workload, configs)
        self._incumbent = None
        finalists.build()
        with exclusive_lock(self.workload.lock):
            self.workload.renew()
            finalists.load(options.seconds / (2 * len(configs)))
            monitor = ConditionsMonitor()
            launches = [candidate.launch_seconds for candidate in finalists.candidates]
            slowest = max(launches, default=0.0)
            hurried = finalists.hurried
            schedule = self._hurried_schedule(slowest, new_draw()) if hurried else self._schedule(always_new=True)
            while finalists.numbers:
                clock = use_same_clock([timer for candidate in finalists.candidates for timer in candidate.timers])
                samplers = {number: self._sampler(finalists.ready[number], schedule) for number in finalists.numbers}
                try:
                    result = race.run_race(
                        [naming(number, sampler) for number, sampler in samplers.items()],
                        self._race_options(options, clock, slowest + sum(launches)),
                        protected=[finalists.numbers.index(i) for i in protected if i in finalists.numbers],
                    )
                    for standing, (number, sampler) in zip(result.standings, samplers.items(), strict=True):
                        if standing.left is None:
                            naming(number, partial(sampler.finish, MANY_LAUNCHES))()
                except FinalistFailed as failed:
                    finalists.drop(failed.number, failed.error, Stage.TIME)
                    continue
                conditions = monitor.stop(result.standings[result.leader].samples)
                result = race.place_among(result, finalists.numbers, len(configs))
                return msgspec.structs.replace(
                    result, conditions=conditions, clock=clock, failed=tuple(finalists.failures.items())
                )
        return race.empty_race(len(configs), options.margin, finalists.failures)


class _Incumbent:
    """The incumbent in this process: its artifact, and its candidate once it is loaded."""

    def __init__(self, incumbent: Incumbent, artifact: Any) -> None:
        self.config, self.seconds, self.artifact = incumbent.config, incumbent.seconds, artifact
        self.candidate: Candidate | None = None


class _Finalists:
    """The configs of a race: those that are ready, and why others are not."""

    def __init__(self, workload: Workload, configs: Sequence[Config]) -> None:
        self._workload, self._configs = workload, configs
        self._artifacts: dict[int, Any] = {}
        self.ready: dict[int, Candidate] = {}
        self.hurried = False
        self.failures: dict[int, Failure] = {}

    @property
    def numbers(self) -> list[int]:
        """The numbers of those that are left."""
        return list(self.ready)

    @property
    def candidates(self) -> list[Candidate]:
        """Those that are left."""
        return list(self.ready.values())

    def build(self) -> None:
        """Builds every config."""
        for number, config in enumerate(self._configs):
            try:
                self._artifacts[number] = self._workload.build(config)
            except Exception as error:  # noqa: BLE001 - it was built in its trial; the others are still to be raced
                self.drop(number, error, Stage.BUILD)

    def load(self, seconds: float) -> None:
        """Loads every config that was built, and judges it on the new arguments; so many seconds each, if possible."""
        draw = new_draw()
        for number, artifact in self._artifacts.items():
            stage = Stage.LOAD
            try:
                candidate = self._workload.load(self._configs[number], artifact)
                stage = Stage.VERIFY
                problem = candidate.verify(seconds)[0]
                if self.hurried or NEEDED_LAUNCHES * candidate.launch_seconds > seconds:
                    self.hurried = True
                    candidate.hurry()
                elif not problem:
                    problem = candidate.check(draw, launches=FEW_LAUNCHES)
                if problem:
                    raise WrongResult(f"{problem} (launch {candidate.launches:,})")
                stage = Stage.TIME
                _ = candidate.timers
                self.ready[number] = candidate
            except Exception as error:  # noqa: BLE001 - as above
                self.drop(number, error, stage)

    def drop(self, number: int, error: Exception, stage: Stage) -> None:
        """Takes a config out of the race."""
        self.failures[number] = failure_of(error, stage, self._configs[number])
        self.ready.pop(number, None)


def _was_launched_once(candidate: Candidate) -> bool:
    return bool(getattr(candidate, "was_launched_once", False))
