"""The evaluator: builds, loads, verifies and times a config. A bad config is a result, not an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from tunewright.cases.inputs import Inputs
from tunewright.cases.tolerance import expected_from
from tunewright.cases.validation import VARIES, PreparedCase
from tunewright.errors import BackendError, TunewrightError
from tunewright.lazy_logging import LazyLogger
from tunewright.measure import race
from tunewright.measure.clock import Regime, Sampler, make_sampler, use_same_clock, weighted_sampler
from tunewright.measure.noise import ConditionsMonitor
from tunewright.model.trial import CLEARLY_FASTER, Failure, Incumbent, Kind, Outcome, Stage, Timing, Trial, TrialRequest
from tunewright.ports.backend import Backend, Kernel, Launch, Timer
from tunewright.spaces.config import Config
from tunewright.stores.file_lock import exclusive_lock

log = LazyLogger(__name__)

StageListener = Callable[[Stage], None]

QUICK_RACE = race.RaceOptions(rounds=12, seconds=0.5)
"""The race of a candidate against the incumbent; a clear loser leaves after two rounds."""

CONFIRMING_RACE = race.RaceOptions(rounds=16, seconds=1.0, fixed=True)
"""The second race of a candidate that seems faster than the incumbent."""

WALL_ROUNDS = 4
"""Rounds in which a candidate must be grossly slower by the wall clock, which other programs may disturb twice."""


class Limits(msgspec.Struct, frozen=True):
    """The limits of one trial: seconds to build, seconds to run, bytes of memory."""

    build: float = 120.0
    run: float = 60.0
    memory: int = 4 << 30


class CheckOptions(msgspec.Struct, frozen=True):
    """How results are verified: against `reference`, or against the results of the default config."""

    reference: Callable[..., Any] | None = None
    tolerance: float | None = None
    precise: bool = True


class TimingOptions(msgspec.Struct, frozen=True):
    """How a kernel is timed: number of threads, cache regime, and the lock file of a device that runs one at a time."""

    threads: int = 1
    regime: Regime = Regime.HOT
    device: Path | None = None


def _ignore_stage(stage: Stage) -> None: ...


class Evaluator(msgspec.Struct, dict=True):
    """Everything a process needs to try configs of one problem: backend, kernel, cases and options."""

    backend: Backend
    kernel: Kernel
    cases: tuple[Inputs, ...]
    default: Config
    check: CheckOptions = CheckOptions()
    timing: TimingOptions = TimingOptions()
    make: Callable[[Inputs], Sequence[Any]] = Inputs.make
    target: str | None = None

    @cached_property
    def prepared_cases(self) -> list[PreparedCase]:
        """The cases with their arguments."""
        try:
            arguments = [(inputs, self.make(inputs)) for inputs in self.cases]
        except Exception as error:
            raise BackendError(f"making the arguments raised {type(error).__name__}: {error}") from error
        parameters, tolerance = self.kernel.parameters, self.check.tolerance
        return [PreparedCase(parameters, args, tolerance, inputs.weight) for inputs, args in arguments]

    @cached_property
    def incumbent_runners(self) -> dict[Config, IncumbentRunner]:
        """The incumbent loaded in this process, by its config."""
        return {}

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(case.arguments.nbytes for case in self.prepared_cases)

    def prepare(self) -> None:
        """Computes the expected results. Raises BackendError if the reference fails."""
        for case in self.prepared_cases:
            if not case.expected:
                case.expected = self._by_reference(case) if self.check.reference else self._by_default(case)

    def _by_reference(self, case: PreparedCase) -> list[Any]:
        assert self.check.reference is not None
        precise, pristine = self.check.precise, case.arguments.pristine
        try:
            with exclusive_lock(self.timing.device):  # a reference may use all cores
                return expected_from(self.check.reference, self.kernel.parameters, pristine, precise=precise)
        except Exception as error:
            hint = '; if it takes only the dtypes of the kernel, declare precision="same"' if precise else ""
            raise BackendError(f"the reference raised {type(error).__name__}: {error}{hint}") from error

    def _by_default(self, case: PreparedCase) -> list[Any]:
        try:
            artifact = self.backend.build(self.kernel, self.default, case.signature)
            with exclusive_lock(self.timing.device):
                results = case.run(self.backend.load(self.kernel, artifact))
            if damage := case.arguments.damage():
                raise BackendError(damage)
        except Exception as error:
            raise BackendError(
                f"there is no reference, and the default config ({self.default}) fails: "
                f"{type(error).__name__}: {error}; give a `reference=` or another `default=`"
            ) from error
        return deepcopy(list(results.values()))

    def __call__(self, request: TrialRequest, on_stage: StageListener = _ignore_stage) -> Trial:
        """Tries one config in this process; `on_stage` is called as each stage begins."""
        self.prepare()
        stage, started, built, fingerprint = Stage.BUILD, time.perf_counter(), None, ""
        outcome: Outcome
        try:
            on_stage(stage)
            artifacts, incumbent = self.build_artifacts(request.config), self._incumbent_runner(request.incumbent)
            built = time.perf_counter()
            on_stage(stage := Stage.WAIT)
            with exclusive_lock(self.timing.device):
                on_stage(stage := Stage.LOAD)
                launches = [self.backend.load(self.kernel, artifact) for artifact in artifacts]
                on_stage(stage := Stage.VERIFY)
                mismatch, fingerprint = self._verify(launches)
                if mismatch:
                    outcome = Failure(Stage.VERIFY, Kind.WRONG, mismatch)
                else:
                    on_stage(stage := Stage.TIME)
                    outcome = self._time(launches, request, incumbent)
        except MemoryError as error:
            outcome = Failure(stage, Kind.MEMORY, f"MemoryError: {error}")
        except Exception as error:  # noqa: BLE001 - whatever a config breaks is data about the config
            kind = Kind.REFUSED if stage in (Stage.BUILD, Stage.LOAD) else Kind.RAISED
            reason = str(error) if isinstance(error, TunewrightError) else f"{type(error).__name__}: {error}"
            outcome = Failure(stage, kind, reason)
        ended = time.perf_counter()
        build_seconds, run_seconds = (built or ended) - started, ended - (built or ended)
        return Trial(request.config, outcome, build_seconds, run_seconds, at=time.time(), fingerprint=fingerprint)

    def build_artifacts(self, config: Config) -> list[Any]:
        """Returns the artifact for each case; cases with the same signature share one."""
        signatures = {str(case.signature): case.signature for case in self.prepared_cases}
        artifacts = {text: self.backend.build(self.kernel, config, signature) for text, signature in signatures.items()}
        return [artifacts[str(case.signature)] for case in self.prepared_cases]

    def _verify(self, launches: Sequence[Launch]) -> tuple[str | None, str]:
        """Returns the first mismatch in any case, and the fingerprints of all."""
        same_dtype, fingerprints = self.check.reference is None, []
        for case, launch in zip(self.prepared_cases, launches, strict=True):
            mismatch, fingerprint = case.verify(launch, same_dtype=same_dtype)
            if mismatch:
                return mismatch, ""
            fingerprints.append(fingerprint)
        return None, VARIES if VARIES in fingerprints else "-".join(fingerprints)

    def _sampler(self, launches: Sequence[Launch]) -> tuple[Sampler, list[Timer]]:
        """Returns a sampler of a working config over all cases, and its timers."""
        samplers, timers = [], []
        for case, launch in zip(self.prepared_cases, launches, strict=True):
            case.run(launch)
            timers.append(self.backend.timer(launch, case.arguments.values, self.timing.threads))
            samplers.append(make_sampler(timers[-1], case.arguments.restorer(), self.timing.regime))
        return weighted_sampler(samplers, [case.weight for case in self.prepared_cases]), timers

    def _time(self, launches: Sequence[Launch], request: TrialRequest, runner: IncumbentRunner | None) -> Timing:
        """Times a config against the incumbent, or alone if there is none; a slow one gets few samples."""
        sample, timers = self._sampler(launches)
        incumbent, loaded = request.incumbent, self._load_incumbent(runner) if runner else None
        if incumbent is None or loaded is None or incumbent.config == request.config:
            return self._time_alone(sample, timers)
        incumbent_sample, incumbent_timers = loaded
        own_clocks = [timer.clock for timer in incumbent_timers]
        clock = use_same_clock([*timers, *incumbent_timers])
        result = race.run_race([incumbent_sample, sample], _options_for(QUICK_RACE, clock))
        ratio = result.ratio(1, 0)[0]
        if ratio < CLEARLY_FASTER:
            # Of many candidates some seem faster by luck. If one became the incumbent, later times would be relative
            # to it and sink from one incumbent to the next. An independent, longer race decides.
            first, result = result, race.run_race([incumbent_sample, sample], _options_for(CONFIRMING_RACE, clock))
            ratio, _, high = result.ratio(1, 0)
            # A slow pair runs too few rounds for a confidence interval: then all rounds of both races must agree.
            if min(high, max(first.max_ratio(1, 0), result.max_ratio(1, 0))) >= CLEARLY_FASTER:
                ratio = max(ratio, CLEARLY_FASTER)
        if own_clocks != [timer.clock for timer in incumbent_timers]:
            self.incumbent_runners.clear()  # it switched to this candidate's clock, which the next may not need
        return Timing(result.standings[1].samples, clock, ratio, incumbent.seconds)

    @staticmethod
    def _time_alone(sample: Sampler, timers: Sequence[Timer]) -> Timing:
        """Takes as many samples as a race among equals would."""
        began, samples = time.perf_counter(), [sample()]
        while len(samples) < 3 or (
            len(samples) < QUICK_RACE.rounds and time.perf_counter() - began < QUICK_RACE.seconds
        ):
            samples.append(sample())
        return Timing(tuple(samples), use_same_clock(timers))

    def _incumbent_runner(self, incumbent: Incumbent | None) -> IncumbentRunner | None:
        """Returns the incumbent, built; it is reused while it stays the incumbent."""
        if incumbent is None:
            return None
        if incumbent.config not in self.incumbent_runners:
            self.incumbent_runners.clear()
            artifacts = self.build_artifacts(incumbent.config)
            self.incumbent_runners[incumbent.config] = IncumbentRunner(incumbent.config, artifacts)
        return self.incumbent_runners[incumbent.config]

    def _load_incumbent(self, runner: IncumbentRunner) -> tuple[Sampler, list[Timer]] | None:
        """Returns the incumbent's sampler and timers; None if it fails here, which is not the candidate's fault."""
        if runner.loaded is None:
            try:
                launches = [self.backend.load(self.kernel, artifact) for artifact in runner.artifacts]
                runner.loaded = self._sampler(launches)
            except Exception as error:  # noqa: BLE001 - a failure of the incumbent, not of the candidate
                log.info("%s: the incumbent %s fails in another worker: %s", self.kernel.name, runner.config, error)
        return runner.loaded

    def race(
        self, configs: Sequence[Config], options: race.RaceOptions, protected: Sequence[int] = ()
    ) -> race.Race | None:
        """Races working configs on the same arguments; one that fails now is dropped. None if none is left."""
        artifacts = [self.build_artifacts(config) for config in configs]
        with exclusive_lock(self.timing.device):
            loaded = [[self.backend.load(self.kernel, artifact) for artifact in each] for each in artifacts]
            samplers = {
                i: sampler for i, launches in enumerate(loaded) if (sampler := self._try_sampler(configs[i], launches))
            }
            if not samplers:
                return None
            clock = use_same_clock([timer for _, timers in samplers.values() for timer in timers])
            options = _options_for(options, clock)
            monitor, numbers = ConditionsMonitor(), list(samplers)
            while numbers:
                candidates = [_with_number(samplers[i][0], i) for i in numbers]
                try:
                    result = race.run_race(
                        candidates, options, protected=[numbers.index(i) for i in protected if i in numbers]
                    )
                except _CandidateFailed as failed:
                    log.warning("%s: %s failed in the race: %s", self.kernel.name, configs[failed.number], failed)
                    numbers.remove(failed.number)
                    continue
                conditions = monitor.stop(result.standings[result.leader].samples)
                result = race.place_among(result, numbers, len(configs))
                return msgspec.structs.replace(result, conditions=conditions, clock=clock)
        return None

    def _try_sampler(self, config: Config, launches: Sequence[Launch]) -> tuple[Sampler, list[Timer]] | None:
        """Returns the sampler of a config to be raced; None if it fails."""
        try:
            return self._sampler(launches)
        except Exception as error:  # noqa: BLE001 - it worked in its trial; the others are still to be raced
            log.warning("%s: %s failed in the race: %s: %s", self.kernel.name, config, type(error).__name__, error)
            return None


class IncumbentRunner:
    """The incumbent in this process: its artifacts, and its sampler once they are loaded."""

    def __init__(self, config: Config, artifacts: list[Any]) -> None:
        self.config, self.artifacts = config, artifacts
        self.loaded: tuple[Sampler, list[Timer]] | None = None


def _options_for(options: race.RaceOptions, clock: str) -> race.RaceOptions:
    """Returns the options for a clock: by the wall clock, gross losers run more rounds."""
    return msgspec.structs.replace(options, gross=WALL_ROUNDS) if clock == "wall" else options


class _CandidateFailed(TunewrightError):
    """Raised in a race when a candidate fails that worked in its trial."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number


def _with_number(sample: Sampler, number: int) -> Sampler:
    """Wraps a sampler so that its failure names the candidate."""

    def numbered() -> float:
        try:
            return sample()
        except Exception as error:
            raise _CandidateFailed(number, f"{type(error).__name__}: {error}") from error

    return numbered
