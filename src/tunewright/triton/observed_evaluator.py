"""The evaluator of a Triton kernel, with what Triton shows of tuning: timings, printed lines and the first error."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import numpy as np

from tunewright.measure.evaluator import FEW_LAUNCHES, Evaluator, StageListener
from tunewright.measure.failures import failure_of
from tunewright.measure.race import Race, RaceOptions
from tunewright.model.trial import Failure, Stage, Timing, Trial, TrialRequest
from tunewright.ports.candidate import Candidate, WrongResult
from tunewright.spaces.config import Config
from tunewright.triton.candidate import QUANTILES, BenchmarkedCandidate
from tunewright.triton.configs import ToTritonConfig
from tunewright.triton.workload import TritonWorkload

FAILED_TIMINGS = [float("inf")] * 3


class Observations:
    """What Triton shows of tuning: `timings` are milliseconds by its config, infinite for those that failed."""

    def __init__(self, name: str, to_triton: ToTritonConfig, *, verbose: bool) -> None:
        self._name, self._to_triton, self._verbose = name, to_triton, verbose
        self.timings: dict[Any, Any] = {}

    def begin(self, config: Config) -> None:
        """Takes in that a config is tried."""
        self._print(f"Autotuning kernel {self._name} with config {self._to_triton(config)}")

    def add(self, trial: Trial, error: Exception | None = None, benchmarked: Any = None) -> None:
        """Takes in a trial, its error if there is one, and what a benchmark measured if it was not raced."""
        if isinstance(trial.outcome, Failure):
            self._print(f"Autotuning failed with {trial.outcome.reason if error is None else error}")
            times = list(FAILED_TIMINGS)
        else:
            times = quantiles(trial.outcome.samples) if benchmarked is None else benchmarked
        self.timings[self._to_triton(trial.config)] = times

    def add_race(self, configs: Sequence[Config], race: Race) -> None:
        """Takes in the times of a race."""
        for number, (config, standing) in enumerate(zip(configs, race.standings, strict=True)):
            if number in race.failures:
                self.timings[self._to_triton(config)] = list(FAILED_TIMINGS)
            elif standing.samples:
                self.timings[self._to_triton(config)] = quantiles(standing.samples)

    def _print(self, text: str) -> None:
        """Prints as Triton does under TRITON_PRINT_AUTOTUNING."""
        if self._verbose:
            sys.stdout.write(f"{text}\n")


class ObservedEvaluator(Evaluator):
    """Evaluates configs on a call, and observes what Triton shows of that."""

    workload: TritonWorkload

    def __init__(self, workload: TritonWorkload, *, verbose: bool = False) -> None:
        super().__init__(workload)
        self._benchmarked: Any = None
        self._observations = Observations(workload.name, workload.to_triton, verbose=verbose)
        self.first_error: Exception | None = None

    def __call__(self, request: TrialRequest, on_stage: StageListener = lambda stage: None) -> Trial:
        """Evaluates one config, and restores the arguments."""
        self._observations.begin(request.config)
        trial = self._try(request, on_stage)
        while self.workload.distrust_failed():
            self._incumbent = None
            trial = self._try(request, on_stage)
        if not trial.works:
            self.first_error = self.first_error or self.workload.error
        benchmarked = None if self.workload.races else self._benchmarked
        self._observations.add(trial, self.workload.error, benchmarked)
        return trial

    @property
    def timings(self) -> dict[Any, Any]:
        """Milliseconds by Triton's config, infinite for those that failed."""
        return self._observations.timings

    def _try(self, request: TrialRequest, on_stage: StageListener) -> Trial:
        self.workload.error = None
        try:
            trial = super().__call__(request, on_stage)
        finally:
            self.workload.settle()
        # An error is no variable here: its traceback has this frame, and such a cycle would keep the arguments.
        return self._after_settling(trial)

    def _after_settling(self, trial: Trial) -> Trial:
        """Returns the trial, which fails if an error surfaced late; raises DeviceLost if the device is unusable."""
        late_error = self.workload.late_error
        if self.workload.guard.lost is not None:
            raise self.workload.guard.lost
        if late_error is None or not trial.works:
            return trial
        self.workload.error = late_error
        return msgspec.structs.replace(trial, outcome=failure_of(late_error, Stage.TIME, trial.config))

    def _time(self, candidate: Candidate, incumbent: Any) -> Timing:
        if not isinstance(candidate, BenchmarkedCandidate):
            return super()._time(candidate, incumbent)
        self._benchmarked = candidate.times
        timing = Timing((candidate.sample(0, audited=False),), candidate.timers[0].clock)
        if problem := candidate.check(1 + secrets.randbelow(1 << 30), launches=FEW_LAUNCHES):
            raise WrongResult(f"{problem} (launch {candidate.launches:,})")
        return timing

    def race(self, configs: Sequence[Config], options: RaceOptions, protected: Sequence[int] = ()) -> Race:
        """Races configs on new contents, and restores the arguments."""
        result = self._race(configs, options, protected)
        while self.workload.distrust_failed():
            result = self._race(configs, options, protected)
        if result.conditions is not None and (complaints := self.workload.gpu_complaints()):
            conditions = msgspec.structs.replace(result.conditions, gpu=tuple(complaints))
            result = msgspec.structs.replace(result, conditions=conditions)
        self._observations.add_race(configs, result)
        return result

    def _race(self, configs: Sequence[Config], options: RaceOptions, protected: Sequence[int]) -> Race:
        try:
            result = super().race(configs, options, protected)
        finally:
            self.workload.settle()
        if self.workload.guard.lost is not None:
            raise self.workload.guard.lost
        return result

    def avoid(self, configs: Collection[Config]) -> None:
        """Takes in which configs must not run: they ended an earlier process, or left its device unusable."""
        self.workload.avoided = configs

    def close(self) -> None:
        """Restores the arguments, and lets go of all that this process holds for the search."""
        self._incumbent = self.first_error = None
        self.workload.close()


class Unraced:
    """An evaluator whose configs are measured by a benchmark, each once: they cannot be raced."""

    def __init__(self, evaluator: ObservedEvaluator) -> None:
        self.avoid, self._evaluator = evaluator.avoid, evaluator

    def __call__(self, request: TrialRequest, on_stage: StageListener = lambda stage: None) -> Trial:
        """Evaluates one config."""
        return self._evaluator(request, on_stage)


def quantiles(samples: Sequence[float]) -> list[float]:
    """Returns samples in seconds as Triton shows them: three quantiles in milliseconds."""
    return [float(1e3 * value) for value in np.quantile(samples, QUANTILES)]
