"""Configs of a Triton kernel tried in a worker: whatever they do to the device or their process, this one goes on."""

from __future__ import annotations

import operator
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import msgspec

from tunewright.errors import BackendError
from tunewright.lazy_logging import LazyLogger
from tunewright.measure.evaluator import Limits
from tunewright.measure.race import Race, RaceOptions, empty_race, place_among
from tunewright.model.decision import Problem
from tunewright.model.trial import Failure, Kind, Stage, Trial, TrialRequest
from tunewright.pools.fork_server import start_worker
from tunewright.pools.judging import GridQuestion, JudgeReply, Question
from tunewright.pools.worker import Worker
from tunewright.pools.worker_process import WorkerProcess
from tunewright.spaces.config import Config
from tunewright.triton import adapter
from tunewright.triton.configs import ConfigSpace
from tunewright.triton.device_guard import DeviceGuard
from tunewright.triton.launching import LaunchCall
from tunewright.triton.observed_evaluator import Observations
from tunewright.triton.options import AutotuneOptions
from tunewright.triton.sent_arguments import CallSender, CallSetup, CannotSend
from tunewright.triton.source import finds_addresses
from tunewright.triton.workload import WorkloadOptions

log = LazyLogger(__name__)

MODULE = "tunewright.triton.worker_main"

SPARE_BYTES = 768 << 20
"""Memory of the device that a worker takes beside its tensors: its context, and the buffer that flushes caches."""

EARLIER = Failure(Stage.VERIFY, Kind.CRASHED, "it ended an earlier process, or left its device unusable")


class CanRunInWorker(Protocol):
    """What a worker needs of a tuned kernel."""

    fn: Any
    base_fn: Any
    options: AutotuneOptions

    def target(self) -> str | None: ...


class CallRequest(Protocol):
    """What is searched: the problem, its configs and the call to try them on."""

    @property
    def problem(self) -> Problem: ...
    @property
    def configs(self) -> ConfigSpace: ...
    @property
    def call(self) -> LaunchCall: ...


class WorkerSource:
    """What workers of a call are started with; `blamed` are configs that must not run, with what they did."""

    def __init__(self, setup: CallSetup, sender: CallSender, call: LaunchCall) -> None:
        self._setup, self._sender, self._call = setup, sender, call
        self.limits: Limits = setup.limits
        self.target: str | None = setup.target
        self.blamed: dict[Config, Failure] = {}

    def start_process(self) -> WorkerProcess:
        """Starts a worker, and tells it what to do."""
        process = start_worker(MODULE)
        process.send(msgspec.structs.replace(self._setup, blamed=tuple(self.blamed)))
        return process

    def answer(self, question: Question) -> JudgeReply:
        """Computes the grid of a launch."""
        assert isinstance(question, GridQuestion)
        named = self._call.all_named
        try:
            arguments = {**question.values, **{name: named[name] for name in question.others}}
            return JudgeReply(grid=tuple(map(operator.index, self._call.kwargs["grid"](arguments))))
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            return JudgeReply(f"the grid raised {type(error).__name__}: {error}")

    def close(self) -> None:
        """Lets go of copied arguments."""
        self._sender.close()


class WorkerAttempt:
    """Tries configs of a call in one worker after another; each lives until a config ends it.

    A config that ends a worker is blamed, also if it ran in the trial of another, as the default does that results are
    compared with: it does not run again, and the trial is repeated without it. `timings` are what Triton shows.
    """

    is_isolated = True
    first_error: Exception | None = None
    oracle_seconds = 0.0

    def __init__(self, source: WorkerSource, observations: Observations) -> None:
        self._source, self._observations = source, observations
        self._blame: Callable[[Trial], None] = lambda trial: None
        self._worker: Worker | None = Worker(source)
        try:
            self._worker.wait_until_ready()
        except BackendError:
            self.close()
            raise

    @property
    def timings(self) -> dict[Any, Any]:
        """Milliseconds by Triton's config, infinite for those that failed."""
        return self._observations.timings

    def avoid(self, configs: Collection[Config]) -> None:
        """Takes in which configs must not run, from earlier searches."""
        if new := {config: EARLIER for config in configs if config not in self._source.blamed}:
            self._source.blamed |= new
            self._end_worker()  # it does not know them

    def blame_by(self, blame: Callable[[Trial], None]) -> None:
        """Takes in who is told of a config that failed in the trial of another."""
        self._blame = blame

    def __call__(self, request: TrialRequest) -> Trial:
        """Tries one config."""
        self._observations.begin(request.config)
        while self._must_repeat(trial := self._try(request), request.config):
            pass
        self._observations.add(trial)
        return trial

    def _try(self, request: TrialRequest) -> Trial:
        """Tries one config in the present worker."""
        if request.incumbent is not None and request.incumbent.config in self._source.blamed:
            request = msgspec.structs.replace(request, incumbent=None)
        worker = self._ready_worker()
        worker.submit(request)
        while (trial := worker.poll(worker.remaining_seconds())) is None:
            pass
        return trial

    def _must_repeat(self, trial: Trial, own: Config) -> bool:
        """Blames whoever ended the worker, if it ended; returns whether that was another config than the tried one."""
        turn, failure = self._find_culprit()
        culprit = turn or own
        if failure is None or failure.kind is Kind.STOPPED or culprit in self._source.blamed:
            return False
        self._source.blamed[culprit] = failure
        if culprit == own:
            return False
        log.warning("%s ended a worker in the trial of %s: %s", culprit, own, failure.reason)
        failed = msgspec.structs.replace(trial, config=culprit, outcome=failure)
        self._observations.add(failed)
        self._blame(failed)
        return True

    def _find_culprit(self) -> tuple[Config | None, Failure | None]:
        """Returns the config that ran last, and how the worker ended, which is then gone; None if it did not end."""
        worker = self._worker
        assert worker is not None
        if worker.end is not None:
            self._end_worker()
        return worker.turn, worker.end

    def race(self, configs: Sequence[Config], options: RaceOptions, protected: Sequence[int] = ()) -> Race | None:
        """Races configs; one that ends the worker is dropped, and the others race again. None if there is no time."""
        blamed, race = self._source.blamed, None
        while race is None:
            numbers = [number for number, config in enumerate(configs) if config not in blamed]
            if not numbers:
                race = empty_race(len(configs), options.margin, {})
                break
            kept = [numbers.index(number) for number in protected if number in numbers]
            race = self._ready_worker().race([configs[number] for number in numbers], options, kept)
            culprit, failure = self._find_culprit()
            if race is not None:
                race = _place(race, numbers, len(configs))
            elif failure is None or culprit is None or culprit in blamed:
                self._end_worker()
                return None
            else:
                blamed[culprit] = failure
                if culprit not in configs:
                    self._blame(Trial(culprit, failure, at=time.time()))
        failures = {number: blamed[config] for number, config in enumerate(configs) if config in blamed}
        race = msgspec.structs.replace(race, failed=tuple(sorted((race.failures | failures).items())))
        self._observations.add_race(configs, race)
        return race

    def _ready_worker(self) -> Worker:
        """Returns the worker; a new one if the last has ended."""
        if self._worker is None:
            self._worker = Worker(self._source)
            self._worker.wait_until_ready()
        return self._worker

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None

    def close(self) -> None:
        """Ends the worker, and lets go of copied arguments."""
        self._end_worker()
        self._source.close()


def _place(race: Race, numbers: Sequence[int], count: int) -> Race:
    """Returns the race as one of more candidates, of which only those in `numbers` could run."""
    failed = tuple((numbers[number], failure) for number, failure in race.failed)
    return msgspec.structs.replace(place_among(race, numbers, count), failed=failed)


def start_attempt(
    tuner: CanRunInWorker, request: CallRequest, options: WorkloadOptions, limits: Limits
) -> WorkerAttempt:
    """Returns an attempt whose first worker is ready. Raises CannotSend or BackendError if a worker cannot do it."""
    name, target = str(tuner.base_fn.__name__), tuner.target()
    if target is None:
        raise CannotSend("no other process can import it; define it at the top of a module")
    if (driver := adapter.driver_installer()) is None:
        raise CannotSend("the simulated driver has no `installer`")
    if reason := _reason_against(tuner, options):
        raise CannotSend(reason)
    DeviceGuard(name).wait_for_earlier_work()
    sender = CallSender(tuner.fn, request.call)
    free = adapter.free_memory()
    try:
        if free is not None and free < 2 * sender.call.nbytes + SPARE_BYTES:
            raise CannotSend(f"the device has only {free >> 20:,} MiB free, too little for tensors of a worker")
        setup = CallSetup(
            os.getpid(),
            [entry or os.getcwd() for entry in sys.path],
            dict(os.environ),  # noqa: TID251 - handed on
            target,
            driver,
            adapter.current_device(),
            str(adapter.cache_folder()),
            request.problem.key.digest,
            tuple(map(str, request.configs.triton_configs)),
            sender.call,
            options.default,
            (),
            limits,
            str(options.lock or ""),
            options.judged,
            options.fingerprints,
        )
        observations = Observations(name, request.configs.to_triton, verbose=adapter.is_verbose())
        return WorkerAttempt(WorkerSource(setup, sender, request.call), observations)
    except CannotSend:
        sender.close()
        raise


def _reason_against(tuner: CanRunInWorker, options: WorkloadOptions) -> str | None:
    """Returns why configs of a kernel must run in this process."""
    if adapter.is_interpreted(tuner.fn):
        return "it is interpreted"
    if options.bench is not None:
        return "a benchmark of its own times it"
    if tuner.options.peers:
        return "it talks to peers, which are other processes"
    return "it finds tensors by addresses in memory" if finds_addresses(tuner.fn) else None
