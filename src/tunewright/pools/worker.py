"""Isolated attempts: configs tried in a child process, with deadlines and a memory limit."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tunewright.cases.inputs import Inputs
from tunewright.errors import BackendError
from tunewright.lazy_logging import LazyLogger
from tunewright.measure.evaluator import Evaluator, Limits
from tunewright.measure.race import Race, RaceOptions
from tunewright.model.trial import Failure, Kind, Stage, Trial, TrialRequest
from tunewright.pools.worker_main import RaceTask, WorkerMessage, WorkerSetup, WorkerTask, serve
from tunewright.pools.worker_process import POLL_SECONDS, START_TIMEOUT, WorkerProcess, describe_exit
from tunewright.spaces.config import Config
from tunewright.stores import serialization

log = LazyLogger(__name__)

LEASE_TIMEOUT = 3600.0
"""Seconds a worker may wait for the device."""


@dataclass(frozen=True)
class IsolatedAttempt:
    """An attempt that runs in another process: names its kernel and inputs, and holds no space, lambda or array.

    A kernel that cannot be imported (defined in a shell, or inside a function) has no `target`; its workers are forked
    from this process, which has it in memory. With `build_only` the workers build, and neither verify nor time.
    """

    make_evaluator: Callable[[], Evaluator]
    cases: tuple[Inputs, ...]
    cache: Path
    target: str | None = None
    threads: int = 1
    limits: Limits = field(default_factory=Limits)
    build_only: bool = False

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

    def race(self, configs: Sequence[Config], options: RaceOptions, protected: Sequence[int] = ()) -> Race | None:
        """Races the configs in one worker; None if the worker dies or does not end in time."""
        worker = Worker(self)
        try:
            return worker.race(configs, options, protected)
        finally:
            worker.close()


class Worker:
    """A child process that tries one config after another, until one of them misbehaves.

    A `retired` worker must not be used again. One that `never_started` was killed before it tried anything.
    """

    def __init__(self, attempt: IsolatedAttempt) -> None:
        self.attempt = attempt
        self.request: TrialRequest | None = None
        self.stage: Stage | None = None
        self.retired = self.never_started = False
        self.built_names: tuple[str, ...] | None = None
        self._build_seconds = 0.0
        self._process = self._start()

    def _start(self) -> WorkerProcess:
        attempt = self.attempt
        if attempt.target is None:
            return WorkerProcess.fork(
                lambda channel: serve(channel, attempt.make_evaluator, attempt.limits, build_only=attempt.build_only)
            )
        process = WorkerProcess.spawn(
            "tunewright.pools.worker_main", threads=attempt.threads, search_path=os.pathsep.join(sys.path)
        )
        path = [entry or os.getcwd() for entry in sys.path]
        cache = str(attempt.cache)
        process.send(WorkerSetup(path, attempt.target, attempt.cases, attempt.limits, cache, attempt.build_only))
        return process

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def fileno(self) -> int:
        """For `select`: readable when the worker has sent something."""
        return self._process.channel.sock.fileno()

    def submit(self, request: TrialRequest) -> None:
        """Sends the next config; a worker has one at a time."""
        self.request, self.built_names = request, None
        self._process.start_timer()
        self._process.reset_memory()
        self._send(WorkerTask(request))

    def race(self, configs: Sequence[Config], options: RaceOptions, protected: Sequence[int] = ()) -> Race | None:
        """Races configs that are known to work; None if the worker dies or does not end in time."""
        self._send(WorkerTask(race=RaceTask(tuple(configs), options, tuple(protected))))
        limits = self.attempt.limits
        deadline = time.monotonic() + START_TIMEOUT + limits.build + limits.run + 2 * options.seconds
        while time.monotonic() < deadline:
            try:
                if not self._process.receive(timeout=1.0):
                    return None
            except TimeoutError:
                continue
            while (body := self._process.channel.pop_message()) is not None:
                message = serialization.decode(body, WorkerMessage)
                if message.race is not None or message.broken is not None:
                    return message.race
        return None

    def _send(self, task: WorkerTask) -> None:
        if not self._process.send(task):
            log.debug("worker %d died before it was given %s", self.pid, task)  # poll() says how

    def remaining_seconds(self) -> float:
        """Seconds until the deadline of the present stage."""
        return max(0.0, self._allowed_seconds() - self._process.elapsed)

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
            outcome = message.trial.outcome
            self.retired = isinstance(outcome, Failure) and outcome.stage is not Stage.BUILD
            self.stage = Stage.BUILD
            return message.trial
        if message.built is not None:
            self.built_names = message.built
            return None
        if self.stage is Stage.BUILD and message.stage is not Stage.BUILD:
            self._build_seconds = self._process.elapsed
        if message.ready:
            self._process.reset_memory()
        self.stage = Stage.BUILD if message.ready else message.stage
        self._process.start_timer()
        return None

    def _fail_overdue(self) -> Trial:
        self.close()
        if self.stage is None:
            raise BackendError(
                f"a worker was not ready after {START_TIMEOUT:g} s; is the reference or the import slow?"
            )
        allowed = self.attempt.limits.build if self.stage is Stage.BUILD else self.attempt.limits.run
        return self._failed_trial(Kind.HUNG, f"it did not end within {allowed:g} s")

    def _fail_dead(self) -> Trial:
        code, tail = self._process.wait(), self._process.output_tail()
        exit_text = describe_exit(code)
        if self.stage is None and code == -signal.SIGKILL:
            # Not the config's fault: the system or a person killed the worker before it began.
            self.never_started = True
            return self._failed_trial(Kind.CRASHED, f"{exit_text} before it began{tail}")
        if self.stage is None:
            raise BackendError(
                f"a worker died before it could try anything ({exit_text}){tail}; "
                "the reference or, without one, the default config crashes"
            )
        memory = self._process.memory_reason(self.attempt.limits.memory)
        return self._failed_trial(Kind.MEMORY if memory else Kind.CRASHED, memory or f"{exit_text}{tail}")

    def _failed_trial(self, kind: Kind, reason: str) -> Trial:
        self.retired = True
        elapsed = self._process.elapsed
        built, ran = (elapsed, 0.0) if self.stage is Stage.BUILD else (self._build_seconds, elapsed)
        assert self.request is not None
        failure = Failure(self.stage or Stage.BUILD, kind, reason)
        return Trial(self.request.config, failure, built, ran, at=time.time())

    def close(self) -> None:
        """Kills the child and whatever it started."""
        self.retired = True
        self._process.close()
