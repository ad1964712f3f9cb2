"""Main of a pool's worker process: loads the kernel, tries configs, reports stages and trials."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from tunewright.cases.inputs import Inputs
from tunewright.errors import BackendError, DeviceLost, TunewrightError
from tunewright.measure.evaluator import Evaluator, Limits
from tunewright.measure.kernel_workload import KernelWorkload
from tunewright.measure.race import Race, RaceOptions
from tunewright.model.trial import Failure, Kind, Stage, Trial, TrialRequest
from tunewright.pools.by_value import load_kernel
from tunewright.pools.judging import JudgeReply, Question, RemoteJudge, serve_judge
from tunewright.pools.kernel_loader import load_target
from tunewright.pools.load_time import SLOW_SECONDS, measured_load
from tunewright.pools.numba_cache import use_numba_cache
from tunewright.pools.worker_process import (
    Channel,
    configure_child_process,
    limit_files,
    limit_memory,
    make_shared_file,
    open_child_channel,
)
from tunewright.spaces.config import Config
from tunewright.stores import serialization

HEARTBEAT_SECONDS = 0.25


class KernelPlace(msgspec.Struct, frozen=True):
    """Where a worker finds the kernel: by name, or as the process that started the worker has `dumped` it."""

    target: str
    dumped: bytes | None = None

    @property
    def kind(self) -> str:
        """How it is loaded, which decides the name of its module."""
        if self.dumped is not None:
            return "value"
        return "script" if Path(self.target.rpartition(":")[0]).is_file() else "module"

    def load(self) -> Any:
        """Returns the kernel."""
        return load_target(self.target) if self.dumped is None else load_kernel(self.dumped)


class WorkerSetup(msgspec.Struct, frozen=True):
    """The first message to a spawned worker: where the kernel is, its inputs and limits."""

    path: list[str]
    kernel: KernelPlace
    cases: tuple[Inputs, ...]
    limits: Limits
    cache: str
    build_only: bool = False
    judge: bool = False


class RaceTask(msgspec.Struct, frozen=True):
    """A race among configs that are known to work."""

    configs: tuple[Config, ...]
    options: RaceOptions
    protected: tuple[int, ...] = ()


class WorkerTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message to a worker: try a config, run a race, or the reply to its question."""

    request: TrialRequest | None = None
    race: RaceTask | None = None
    reply: JudgeReply | None = None


class WorkerMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message from a worker: it is ready, it reached a stage, it has a result, or the program itself is `broken`.

    A worker that only builds names the artifacts it `built`. It waits for the answer to a `question`. It says that it
    is `alive` when a launch has ended: deadlines are those of one launch. If it runs configs in turn, it says whose
    `turn` it is before that one runs, so that the one that ends the process is known.
    """

    ready: bool = False
    question: Question | None = None
    alive: bool = False
    turn: Config | None = None
    stage: Stage | None = None
    trial: Trial | None = None
    race: Race | None = None
    built: tuple[str, ...] | None = None
    broken: str | None = None
    load_seconds: float = 0.0  # of the kernel's program, if that was slow


class ParentLink:
    """A worker's side of the channel: tasks that arrive while it waits for a reply are kept."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: deque[WorkerTask] = deque()

    def send(self, message: WorkerMessage) -> None:
        """Sends a message."""
        self._channel.send(message)

    def next_task(self) -> WorkerTask | None:
        """Waits for the next task; None when the parent has hung up."""
        return self._waiting.popleft() if self._waiting else self._receive()

    def ask(self, question: Question) -> JudgeReply:
        """Sends a question and waits for the reply."""
        self.send(WorkerMessage(question=question))
        while (task := self._receive()) is not None:
            if task.reply is not None:
                return task.reply
            self._waiting.append(task)
        raise SystemExit  # the parent is gone

    def _receive(self) -> WorkerTask | None:
        body = self._channel.wait_message()
        return None if body is None else serialization.decode(body, WorkerTask)


def serve(
    link: ParentLink, make_evaluator: Callable[[], Evaluator], limits: Limits, *, build_only: bool = False
) -> None:
    """Answers requests with trials, or with the names of built artifacts, until the parent hangs up.

    It ends if the device is lost: whose turn it was is known to the parent.
    """
    try:
        evaluator = make_evaluator()
        if not build_only:
            _use_remote_judge(link, evaluator)
            evaluator.prepare()
    except TunewrightError as error:
        link.send(WorkerMessage(broken=str(error)))
        return
    evaluator.on_sample = _Heartbeat(link)
    link.send(WorkerMessage(ready=True))
    while (task := link.next_task()) is not None:
        # Comparing results takes memory too, in double precision, and is not the candidate's doing.
        limit_memory(limits.memory + 10 * evaluator.nbytes)
        limit_files(limits.memory + evaluator.nbytes)  # results are written to a file in memory
        try:
            if task.request is not None and build_only:
                message = _build(evaluator, task.request.config)
            elif task.request is not None:
                message = WorkerMessage(
                    trial=evaluator(task.request, lambda stage: link.send(WorkerMessage(stage=stage)))
                )
            elif task.race is not None:
                message = WorkerMessage(race=evaluator.race(task.race.configs, task.race.options, task.race.protected))
        except DeviceLost as lost:
            if lost.config is not None:
                link.send(WorkerMessage(turn=lost.config))
                _end_process(lost.reason)
            link.send(WorkerMessage(broken=str(lost)))
            return
        except TunewrightError as error:
            link.send(WorkerMessage(broken=str(error)))
            return
        link.send(message)


def _end_process(reason: str) -> NoReturn:
    """Ends this process with a reason, and without the device's own clean-up, which may fail or hang."""
    sys.stderr.write(reason)
    sys.stderr.flush()
    os._exit(1)


class _Heartbeat:
    """Tells the parent now and then that a launch has ended."""

    def __init__(self, link: ParentLink) -> None:
        self._link, self._last = link, time.monotonic()

    def __call__(self) -> None:
        if (now := time.monotonic()) - self._last > HEARTBEAT_SECONDS:
            self._last = now
            self._link.send(WorkerMessage(alive=True))


def _use_remote_judge(link: ParentLink, evaluator: Evaluator) -> None:
    """Has the results of a kernel judged by another process."""
    workload = getattr(evaluator, "workload", None)
    if isinstance(workload, KernelWorkload):
        workload.judge = RemoteJudge(link.ask, workload, make_shared_file())


def _build(evaluator: Evaluator, config: Config) -> WorkerMessage:
    """Names the artifacts of a config that are files in the cache; a refusal of the backend is a failed trial."""
    began = time.perf_counter()
    try:
        artifacts = [getattr(artifact, "inner", artifact) for artifact in evaluator.build_artifacts(config)]
    except TunewrightError as error:
        failure = Failure(Stage.BUILD, Kind.REFUSED, str(error))
        return WorkerMessage(trial=Trial(config, failure, time.perf_counter() - began, at=time.time()))
    names = dict.fromkeys(artifact.name for artifact in artifacts if isinstance(artifact, Path))
    return WorkerMessage(built=tuple(names))


def main() -> None:
    """Entry of a spawned worker."""
    configure_child_process()
    channel = open_child_channel()
    body = channel.wait_message()
    if body is None:
        return
    setup = serialization.decode(body, WorkerSetup)
    sys.path[:] = setup.path
    use_numba_cache(Path(setup.cache).absolute(), setup.kernel.kind)

    def make_evaluator() -> Evaluator:
        try:
            with measured_load() as load:
                kernel = setup.kernel.load()
            if load.seconds >= SLOW_SECONDS and not setup.judge:
                channel.send(WorkerMessage(load_seconds=load.seconds))
            evaluator: Evaluator = kernel.make_evaluator(setup.cases, Path(setup.cache))
        except TunewrightError:
            raise
        except Exception as error:
            name = setup.kernel.target or "the kernel"
            raise BackendError(f"loading {name} raised {type(error).__name__}: {error}") from error
        return evaluator

    if setup.judge:
        serve_judge(channel, make_evaluator)
    else:
        serve(ParentLink(channel), make_evaluator, setup.limits, build_only=setup.build_only)
