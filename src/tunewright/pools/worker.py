"""Isolated attempts: configs tried in a child process, with deadlines and a memory limit."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Protocol

import msgspec

from tunewright.cases.inputs import Inputs
from tunewright.errors import BackendError
from tunewright.lazy_logging import LazyLogger
from tunewright.measure.evaluator import Evaluator, Limits
from tunewright.measure.race import Race, RaceOptions
from tunewright.model.trial import Failure, Kind, Outcome, Stage, Timing, Trial, TrialRequest
from tunewright.pools.judging import (
    ClockReading,
    ClockWitness,
    JudgeProcess,
    JudgeReply,
    JudgeRequest,
    JudgeStart,
    Question,
    serve_judge,
)
from tunewright.pools.load_time import warn_of_slow_load
from tunewright.pools.worker_main import (
    KernelPlace,
    ParentLink,
    RaceTask,
    WorkerMessage,
    WorkerSetup,
    WorkerTask,
    serve,
)
from tunewright.pools.worker_process import POLL_SECONDS, START_TIMEOUT, WorkerProcess, describe_exit
from tunewright.spaces.config import Config
from tunewright.stores import serialization

log = LazyLogger(__name__)

WHOLE_RUN_SHARE = 0.25
"""The share of the time since a config began to run that its only sample must have."""

MIN_VERDICTS = 2
"""Results of a candidate that are judged at least: before its samples, and after them."""

LEASE_TIMEOUT = 3600.0
"""Seconds a worker may wait for the device."""


class StartsWorkers(Protocol):
    """What a worker needs of the attempt that it belongs to."""

    @property
    def limits(self) -> Limits: ...
    @property
    def target(self) -> str | None: ...
    def start_process(self) -> WorkerProcess: ...
    def answer(self, question: Question) -> JudgeReply:
        """Answers what a worker asks."""
        ...


@dataclass(frozen=True)
class IsolatedAttempt:
    """An attempt that runs in another process: names its kernel and inputs, and holds no space, lambda or array.

    A kernel that cannot be imported (defined in a shell, or inside a function) has no `target`. Its workers get it
    `dumped`, or are forked from this process, which has it in memory. With `build_only` the workers build, and neither
    verify nor time. If results are `judged`, one more process has the expected ones.
    """

    make_evaluator: Callable[[], Evaluator]
    cases: tuple[Inputs, ...]
    cache: Path
    target: str | None = None
    threads: int = 1
    limits: Limits = field(default_factory=Limits)
    build_only: bool = False
    judged: bool = True
    dumped: bytes | None = field(default=None, repr=False)
    _judges: list[JudgeProcess] = field(default_factory=list, compare=False, repr=False)

    def __call__(self, request: TrialRequest) -> Trial:
        """Tries one config in a worker of its own."""
        worker = Worker(self)
        try:
            worker.submit(request)
            while (trial := worker.poll(worker.remaining_seconds())) is None:
                pass
            return trial
        finally:
            worker.close()

    @property
    def judge(self) -> JudgeProcess:
        """The process that knows the expected results; one for all workers."""
        if not self._judges:
            self._judges.append(JudgeProcess(partial(self.start_process, judge=True)))
        return self._judges[0]

    def answer(self, question: Question) -> JudgeReply:
        """Has the judge answer what a worker asks."""
        assert isinstance(question, JudgeStart | JudgeRequest)
        return self.judge.ask(question)

    @property
    def oracle_seconds(self) -> float:
        """About how long the expected results of new contents take."""
        return self._judges[0].seconds if self._judges else 0.0

    def start_process(self, *, judge: bool = False) -> WorkerProcess:
        """Starts a worker, or the process that judges results; the first worker starts that too."""
        if self.judged and not self.build_only and not judge:
            _ = self.judge
        if self.target is None and self.dumped is None:
            if judge:
                return WorkerProcess.fork(lambda channel: serve_judge(channel, self.make_evaluator))
            return WorkerProcess.fork(
                lambda channel: serve(ParentLink(channel), self.make_evaluator, self.limits, build_only=self.build_only)
            )
        process = WorkerProcess.spawn(
            "tunewright.pools.worker_main", threads=self.threads, search_path=os.pathsep.join(sys.path)
        )
        path = [entry or os.getcwd() for entry in sys.path]
        place = KernelPlace(self.target or "", self.dumped)
        setup = WorkerSetup(path, place, self.cases, self.limits, str(self.cache), self.build_only, judge)
        process.send(setup)
        return process

    def race(self, configs: Sequence[Config], options: RaceOptions, protected: Sequence[int] = ()) -> Race | None:
        """Races the configs in one worker; None if the worker dies or does not end in time."""
        worker = Worker(self)
        try:
            return worker.race(configs, options, protected)
        finally:
            worker.close()


class Worker:
    """A child process that tries one config after another, until one of them misbehaves.

    A `retired` worker must not be used again. One that `never_started` was killed before it tried anything. `turn` is
    the config that runs, or ran last, if the worker says so. `end` is why it died, or had to be killed.
    """

    def __init__(self, attempt: StartsWorkers) -> None:
        self.attempt = attempt
        self.request: TrialRequest | None = None
        self.stage: Stage | None = None
        self.retired = self.never_started = False
        self.built_names: tuple[str, ...] | None = None
        self._build_seconds = 0.0
        self.turn: Config | None = None
        self.end: Failure | None = None
        self._process = attempt.start_process()
        self._witness = ClockWitness(self._process.pid)
        self._raced: list[Race | None] = []
        self._is_judged, self._verdicts = False, 0
        self._ends = self._ran_from = inf

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def fileno(self) -> int:
        """For `select`: readable when the worker has sent something."""
        return self._process.channel.sock.fileno()

    def wait_until_ready(self) -> None:
        """Waits until it can try configs. Raises BackendError if that fails."""
        while self.stage is None:
            self.poll(POLL_SECONDS)

    def submit(self, request: TrialRequest) -> None:
        """Sends the next config; a worker has one at a time."""
        self.request, self.built_names, self._verdicts, self.turn = request, None, 0, None
        limited = request.allowance is not None and not request.essential
        self._ends = time.monotonic() + request.allowance.most if request.allowance and limited else inf
        self._process.start_timer()
        self._process.reset_memory()
        self._send(WorkerTask(request))

    def race(self, configs: Sequence[Config], options: RaceOptions, protected: Sequence[int] = ()) -> Race | None:
        """Races configs that are known to work; None if the worker dies or does not end in time."""
        self._send(WorkerTask(race=RaceTask(tuple(configs), options, tuple(protected))))
        limits = self.attempt.limits
        ends, silence = time.monotonic() + (options.limit or inf), limits.build + limits.run
        silence += START_TIMEOUT if self.stage is None else 0.0
        self.turn = None
        self._process.start_timer()
        while time.monotonic() < ends and self._process.elapsed < silence:
            try:
                if not self._process.receive(timeout=1.0):
                    reason = describe_exit(self._process.wait()) + self._process.output_tail()
                    self.end = Failure(Stage.TIME, Kind.CRASHED, reason)
                    return None
            except TimeoutError:
                continue
            while (body := self._process.channel.pop_message()) is not None:
                self._handle(serialization.decode(body, WorkerMessage))
            if self._raced:
                return self._distrust_race(self._raced.pop())
        if time.monotonic() < ends:
            self.end = Failure(Stage.TIME, Kind.HUNG, f"it did not end within {silence:g} s")
        return None

    def _distrust_race(self, race: Race | None) -> Race | None:
        """Returns no race if too few results were judged; who left it has one verdict at least, and cannot win."""
        standings = () if race is None else race.standings
        needed = sum(MIN_VERDICTS if each.left is None else 1 for each in standings if each.samples)
        if self._is_judged and self._verdicts < needed:
            log.warning("a race is not trusted: the results of its candidates were not judged")
            return None
        return race

    def _send(self, task: WorkerTask) -> None:
        if not self._process.send(task):
            log.debug("worker %d died before it was given %s", self.pid, task)  # poll() says how

    def remaining_seconds(self) -> float:
        """Seconds until the deadline of the present stage, or the end of the budget."""
        return max(0.0, min(self._allowed_seconds() - self._process.elapsed, self._ends - time.monotonic()))

    def seconds_overdue(self) -> float:
        """Seconds by which the present stage is past its deadline; negative before it."""
        return self._process.elapsed - self._allowed_seconds()

    def _allowed_seconds(self) -> float:
        limits = self.attempt.limits
        return {None: START_TIMEOUT, Stage.BUILD: limits.build, Stage.WAIT: LEASE_TIMEOUT}.get(self.stage, limits.run)

    def poll(self, timeout: float = 0.0) -> Trial | None:
        """Returns the trial once the config has finished, failed, died or run out of time; None while it runs."""
        try:
            alive = self._process.receive(max(min(timeout, POLL_SECONDS), 1e-3))
        except TimeoutError:
            return None if self.remaining_seconds() > 0 else self._fail_overdue()
        while (body := self._process.channel.pop_message()) is not None:
            if (trial := self._handle(serialization.decode(body, WorkerMessage))) is not None:
                return trial
        return None if alive else self._fail_dead()

    def _handle(self, message: WorkerMessage) -> Trial | None:
        """Takes in a message; returns the trial if it has one."""
        if message.broken is not None:
            self.close()
            raise BackendError(message.broken)
        if message.trial is not None:
            # One that wrote where it must not may have broken the worker too: it is not used again.
            trial = self._distrust(message.trial)
            self.retired = isinstance(trial.outcome, Failure) and trial.outcome.stage is not Stage.BUILD
            self.stage = Stage.BUILD
            return trial
        if not self._take_in(message):
            self._enter_stage(message)
        return None

    def _take_in(self, message: WorkerMessage) -> bool:
        """Takes in what a worker says within a stage; returns whether that was all."""
        if message.race is not None:
            self._raced.append(message.race)
        elif message.question is not None:
            self._answer(message.question)
        elif message.alive or message.turn is not None:
            self.turn = message.turn or self.turn
            self._process.start_timer()
        elif message.load_seconds:
            warn_of_slow_load(self.attempt.target or "", message.load_seconds)
        elif message.built is not None:
            self.built_names = message.built
        else:
            return False
        return True

    def _enter_stage(self, message: WorkerMessage) -> None:
        if self.stage is Stage.BUILD and message.stage is not Stage.BUILD:
            self._build_seconds = self._process.elapsed
        if message.stage is Stage.VERIFY:
            self._ran_from = time.monotonic()
        if message.ready:
            self._process.reset_memory()
        self.stage = Stage.BUILD if message.ready else message.stage
        self._process.start_timer()

    def _distrust(self, trial: Trial) -> Trial:
        """Returns a trial that claims to work as wrong, if nobody was asked about its results before and after.

        A single sample may be the launch whose results were judged; then it took most of the time since.
        """
        if not trial.works or not self._is_judged or self._verdicts >= MIN_VERDICTS:
            return trial
        if self._verdicts and self._is_whole_run(trial.outcome):
            return trial
        reason = "its process did not have its results judged: it may have tampered with the code that does"
        return msgspec.structs.replace(trial, outcome=Failure(Stage.VERIFY, Kind.WRONG, reason))

    def _is_whole_run(self, outcome: Outcome) -> bool:
        """Whether there is one sample, and it is as long as what this process saw of it."""
        if not isinstance(outcome, Timing) or len(outcome.samples) != 1:
            return False
        return outcome.samples[0] >= WHOLE_RUN_SHARE * (time.monotonic() - self._ran_from)

    def _answer(self, question: Question) -> None:
        """Answers a worker's question; its time begins again, since a launch has ended."""
        if isinstance(question, JudgeStart | JudgeRequest):
            self._is_judged, self._verdicts = True, self._verdicts + 1
        try:
            reply = (
                JudgeReply(self._witness.take(question))
                if isinstance(question, ClockReading)
                else self.attempt.answer(question)
            )
        except BackendError:
            self.close()
            raise
        self._send(WorkerTask(reply=reply))
        self._process.start_timer()

    def _fail_overdue(self) -> Trial:
        memory = self._process.overdue_memory_reason(self.attempt.limits.memory)
        self.close()
        if time.monotonic() >= self._ends:
            return self._failed_trial(Kind.STOPPED, "the budget was over while it ran")
        if self.stage is None:
            raise BackendError(
                f"a worker was not ready after {START_TIMEOUT:g} s; is the reference or the import slow?"
            )
        allowed = self.attempt.limits.build if self.stage is Stage.BUILD else self.attempt.limits.run
        reason = f"it did not end within {allowed:g} s"
        return self._failed_trial(Kind.MEMORY if memory else Kind.HUNG, f"{memory}, and {reason}" if memory else reason)

    def _fail_dead(self) -> Trial:
        code, tail = self._process.wait(), self._process.output_tail()
        exit_text = describe_exit(code)
        if self.stage is None and code == -signal.SIGKILL and self.request is not None:
            # Not the config's fault: the system or a person killed the worker before it began.
            self.never_started = True
            return self._failed_trial(Kind.CRASHED, f"{exit_text} before it began{tail}")
        if self.stage is None:
            self.close()
            raise BackendError(
                f"a worker died before it could try anything ({exit_text}){tail}; "
                "the reference or, without one, the default config crashes"
            )
        if code == -signal.SIGXFSZ:
            limit = f"{self.attempt.limits.memory >> 20:,} MiB, which `memory_mb` allows"
            return self._failed_trial(Kind.CRASHED, f"it wrote a file of more than {limit}")
        memory = self._process.memory_reason(self.attempt.limits.memory)
        trial = self._failed_trial(Kind.MEMORY if memory else Kind.CRASHED, memory or f"{exit_text}{tail}")
        if self.turn in (None, trial.config):
            return trial
        log.info("%s is not tried: %s ended its worker (%s)", trial.config, self.turn, exit_text)
        stopped = Failure(Stage.TIME, Kind.STOPPED, f"{self.turn} ended its worker")
        return msgspec.structs.replace(trial, outcome=stopped)

    def _failed_trial(self, kind: Kind, reason: str) -> Trial:
        self.retired = True
        elapsed = self._process.elapsed
        built, ran = (elapsed, 0.0) if self.stage is Stage.BUILD else (self._build_seconds, elapsed)
        assert self.request is not None
        self.end = Failure(self.stage or Stage.BUILD, kind, reason)
        return Trial(self.request.config, self.end, built, ran, at=time.time())

    def close(self) -> None:
        """Kills the child and whatever it started."""
        self.retired = True
        self._process.close()
