"""Rounds of a comparison: implementations of one call, each in its worker, sampled in turn."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import numpy as np

from tunewright.bench.calls import OperatorCall
from tunewright.bench.results import CandidateFailure
from tunewright.bench.worker import BenchWorker, Build
from tunewright.bench.worker_main import (
    BenchCommand,
    BenchResponse,
    CandidateFailed,
    PrepareAnchor,
    PreparedCandidate,
    PrepareImplementation,
    TakeSample,
    UseClock,
)
from tunewright.measure.clock import CLOCKS
from tunewright.measure.evaluator import Limits

ANCHOR = "anchor"
"""The name of the anchor, which runs beside the implementations; no implementation is called so."""

MIN_ROUNDS = 6
"""Rounds that every candidate runs, however slow."""


class RoundOptions(msgspec.Struct, frozen=True):
    """Limits of a comparison: rounds, seconds, and the number of threads."""

    rounds: int = 40
    seconds: float = 10.0
    threads: int = 1
    seed: int = 0


class BenchCandidate(msgspec.Struct, frozen=True):
    """A candidate of a comparison: its name, implementation and build, and its config if it has knobs."""

    name: str
    implementation: str
    build: Build = Build()
    config: dict[str, Any] = {}


class RepeatResult(msgspec.Struct, frozen=True):
    """What one repeat gave for a candidate: how it was prepared and its samples, or its failure."""

    prepared: PreparedCandidate | None = None
    samples: tuple[float, ...] = ()
    failure: CandidateFailure | None = None


@dataclass
class WorkerGroup:
    """The workers of one repeat: one for each operator and implementation, or one for each build that all share."""

    limits: Limits
    folder: Path  # for expected results and builds
    processors: tuple[int, ...]
    isolated: bool = True
    workers: dict[tuple[str, ...], BenchWorker] = field(default_factory=dict)

    def __enter__(self) -> WorkerGroup:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self.workers.values():
            worker.close()

    def worker(self, operator: str, candidate: BenchCandidate) -> BenchWorker:
        """Returns the worker of a candidate; a new one if the last was closed."""
        key = (candidate.build.python, *candidate.build.paths)
        if self.isolated or candidate.name == ANCHOR:
            key = (*key, operator, candidate.implementation)
        if key not in self.workers or self.workers[key].closed:
            self.workers[key] = BenchWorker(candidate.build, self.limits, self.processors)
        return self.workers[key]


def run_repeat(
    workers: WorkerGroup,
    call: OperatorCall,
    candidates: Sequence[BenchCandidate],
    options: RoundOptions,
    anchor: str = "",
) -> tuple[dict[str, RepeatResult], str]:
    """Returns the results of one repeat by name, and the clock; after a failure, the other candidates start again."""
    failed: dict[str, RepeatResult] = {}
    everyone = [*candidates, *([BenchCandidate(ANCHOR, anchor)] if anchor else [])]
    while left := [candidate for candidate in everyone if candidate.name not in failed]:
        if left[0].name == ANCHOR:
            break
        try:
            results, clock = _Comparison(workers, call, left, options).run()
            return failed | results, clock
        except _NamedFailure as error:
            failed[error.name] = RepeatResult(failure=error.failure)
    return failed, ""


class _NamedFailure(CandidateFailed):
    """Raised when a candidate fails; has its name."""

    def __init__(self, name: str, cause: CandidateFailed) -> None:
        super().__init__(cause.failure.kind, cause.failure.stage, cause.failure.reason)
        self.name = name


class _Comparison:
    """A comparison in progress."""

    def __init__(
        self, workers: WorkerGroup, call: OperatorCall, candidates: Sequence[BenchCandidate], options: RoundOptions
    ) -> None:
        self.workers, self.call, self.options = workers, call, options
        self.candidates = {candidate.name: candidate for candidate in candidates}
        self.prepared: dict[str, PreparedCandidate] = {}

    def run(self) -> tuple[dict[str, RepeatResult], str]:
        for name in self.candidates:
            self.prepared[name] = self._request(name, self._prepare_command(name)).candidate or PreparedCandidate("")
        clock = max((prepared.clock for prepared in self.prepared.values()), key=list(CLOCKS).index)
        for name in self.candidates:
            self._request(name, UseClock(clock))
        samples = self._run_rounds()
        return {name: RepeatResult(self.prepared[name], tuple(own)) for name, own in samples.items()}, clock

    def _worker(self, name: str) -> BenchWorker:
        return self.workers.worker(self.call.operator, self.candidates[name])

    def _request(self, name: str, command: BenchCommand) -> BenchResponse:
        try:
            return self._worker(name).request(command)
        except CandidateFailed as error:
            self._close_worker(name, error)
            raise _NamedFailure(name, error) from error

    def _close_worker(self, name: str, error: CandidateFailed) -> None:
        """Closes the worker, unless the implementation only refused the call, which harms nobody."""
        if error.failure.stage != "support":
            self._worker(name).close()

    def _prepare_command(self, name: str) -> PrepareImplementation | PrepareAnchor:
        candidate = self.candidates[name]
        if name == ANCHOR:
            return PrepareAnchor("dense" if candidate.implementation == "dense" else "wide")
        expected = self.workers.folder / f"{str(self.call).replace(' ', '-')}.npy"
        return PrepareImplementation(
            self.call,
            candidate.implementation,
            self.options.threads,
            str(expected),
            str(self.workers.folder),
            self.workers.limits.memory,
            candidate.config,
        )

    def _run_rounds(self) -> dict[str, list[float]]:
        """Returns all samples; after MIN_ROUNDS, a candidate that has used up its share of the time stops."""
        names, rng = list(self.candidates), np.random.default_rng(self.options.seed)
        samples: dict[str, list[float]] = {name: [] for name in names}
        spent, share, began = dict.fromkeys(names, 0.0), self.options.seconds / len(names), time.monotonic()
        for number in range(self.options.rounds):
            may_stop = number >= MIN_ROUNDS
            if may_stop and time.monotonic() - began > self.options.seconds:
                break
            running = [
                name for name in names if not may_stop or (len(samples[name]) == number and spent[name] <= share)
            ]
            for i in rng.permutation(len(running)):
                name, start = running[i], time.monotonic()
                samples[name].append(self._sample(name))
                spent[name] += time.monotonic() - start
        return samples

    def _sample(self, name: str) -> float:
        implementation = self.candidates[name].implementation
        command = TakeSample(ANCHOR if name == ANCHOR else implementation)
        seconds = self._request(name, command).seconds or 0.0
        if self.workers.isolated and name != ANCHOR:
            try:
                self._worker(name).check_leak()
            except CandidateFailed as error:
                self._close_worker(name, error)
                raise _NamedFailure(name, error) from error
        return seconds


def samples_of(results: Sequence[Mapping[str, RepeatResult]], name: str) -> tuple[tuple[float, ...], ...]:
    """Returns the samples of a candidate, by repeat."""
    return tuple(repeat[name].samples for repeat in results if name in repeat and repeat[name].samples)
