"""Tuning in the background: a child process at low priority tunes graphs, one at a time, while this one goes on."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from tunewright.errors import TunewrightError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.pools.worker_process import WorkerProcess, describe_exit
from tunewright.stores import process_id, serialization
from tunewright.torch.inductor.graphs import CompiledGraph
from tunewright.torch.process_state import ProcessState

log = LazyLogger(__name__)

WORKER = "tunewright.torch.background_main"
OVERRUN = 1.1
"""The share of its budget after which a child is killed.
When the budget ends, it is asked to decide with what it has."""


class TuningRequest(msgspec.Struct, frozen=True):
    """What a child is asked: a graph in a folder, its name and key, and how it is tuned. `settings` say where."""

    folder: str
    name: str
    key: Key
    options: dict[str, Any]
    overrides: dict[str, Any]
    budget: str
    each: str
    threads: int
    state: ProcessState
    settings: dict[str, Any]
    deadline: float = 0.0
    numerics: tuple[str, ...] = ()


class TuningReply(msgspec.Struct, frozen=True):
    """What a child answers: decisions by name, or why there are none."""

    decisions: dict[str, Decision] = {}
    problem: str = ""


class TuningJob:
    """A graph to be tuned by a child; `write` puts it into a folder. `seconds` limit it, from its start."""

    def __init__(self, request: TuningRequest, write: Callable[[Path], None], seconds: float | None) -> None:
        self.request, self.seconds = request, seconds
        self.write: Callable[[Path], None] | None = write
        self.reply: TuningReply | None = None
        self.started = self.ended = 0.0
        self.done = threading.Event()

    def finish(self, reply: TuningReply) -> None:
        """Keeps the reply, for the next call of the graph."""
        self.reply, self.ended, self.write = reply, time.monotonic(), None
        if reply.problem:
            log.warning("%s stays as PyTorch compiles it: %s", self.request.name, reply.problem)
        self.done.set()


class BackgroundTuner:
    """Runs jobs one after another, each in a child of its own; a thread waits for it, which ends with the last job."""

    def __init__(self) -> None:
        self._lock, self._owner = threading.Lock(), process_id.current
        self._waiting: deque[TuningJob] = deque()
        self._thread: threading.Thread | None = None
        self._worker: WorkerProcess | None = None
        self._job: TuningJob | None = None
        self._closed = False
        atexit.register(self.close)

    @property
    def is_usable(self) -> bool:
        """Whether it was not ended, and is not that of a process that this one was forked from."""
        return not self._closed and self._owner == process_id.current

    @property
    def worker(self) -> int | None:
        """The id of the child that is at work."""
        worker = self._worker
        return None if worker is None else worker.pid

    def submit(self, job: TuningJob) -> None:
        """Has a job done when those before it are."""
        with self._lock:
            self._waiting.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_all, name="tunewright background", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Ends the child; what it has measured is stored, and says what was not finished."""
        if not self.is_usable:
            return
        self._closed = True
        with self._lock:
            unfinished, worker, thread = [self._job, *self._waiting], self._worker, self._thread
            self._waiting.clear()
        names = [job.request.name for job in unfinished if job is not None]
        if names:
            log.warning(
                '%s: not tuned yet as the process ends; the next one goes on with the trials so far. tune="now" waits',
                ", ".join(names),
            )
        if worker is not None:
            _signal(worker, signal.SIGKILL)
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)

    def _run_all(self) -> None:
        while True:
            with self._lock:
                self._job = job = self._waiting.popleft() if self._waiting else None
                if job is None:
                    self._thread = None
                    return
            try:
                reply = self._run(job)
            except (TunewrightError, OSError, RuntimeError) as error:
                reply = TuningReply(problem=f"it cannot be tuned in the background: {error}")
            job.finish(reply)

    def _run(self, job: TuningJob) -> TuningReply:
        """Has a child tune one graph; returns its reply, or how it ended."""
        job.started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="tunewright-") as folder:  # which nobody else may read or write
            assert job.write is not None
            job.write(Path(folder))
            path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
            worker = WorkerProcess.spawn(WORKER, threads=job.request.threads, search_path=path)
            try:
                with self._lock:
                    self._worker = worker
                deadline = time.time() + (inf if job.seconds is None else job.started + job.seconds - time.monotonic())
                worker.send(msgspec.structs.replace(job.request, folder=folder, deadline=min(deadline, 1e12)))
                return self._wait(worker, job)
            finally:
                with self._lock:
                    self._worker = None
                worker.close()

    def _wait(self, worker: WorkerProcess, job: TuningJob) -> TuningReply:
        limits = deque[tuple[float, signal.Signals]]()
        late = TuningReply(
            problem=f"it was not decided within {job.seconds} s, at the end of which its tuner is killed"
        )
        if job.seconds is not None:
            limits += [(job.seconds, signal.SIGTERM), (OVERRUN * job.seconds, signal.SIGKILL)]
        while (body := worker.channel.pop_message()) is None:
            left = None if not limits else max(0.0, job.started + limits[0][0] - time.monotonic())
            worker.channel.sock.settimeout(left if left is None or left > 0 else 1e-3)
            try:
                if not worker.channel.receive():
                    end = f"its tuner ended early, {describe_exit(worker.wait())}{worker.output_tail()}"
                    return late if len(limits) == 1 else TuningReply(problem=end)
            except TimeoutError:
                _signal(worker, limits.popleft()[1])
                if not limits:
                    return late
        return serialization.decode(body, TuningReply)


def _signal(worker: WorkerProcess, number: signal.Signals) -> None:
    """Sends a signal to a child, and SIGKILL to all that it has started too."""
    try:
        if number is signal.SIGKILL:
            os.killpg(worker.pid, number)
        else:
            os.kill(worker.pid, number)
    except (ProcessLookupError, PermissionError):
        log.info("the tuner of graphs has ended already")


_tuner: BackgroundTuner | None = None
_tuner_lock = threading.Lock()


def background_tuner() -> BackgroundTuner:
    """Returns the one of this process."""
    global _tuner  # noqa: PLW0603 - one child at a time for the whole process
    with _tuner_lock:
        if _tuner is None or not _tuner.is_usable:
            _tuner = BackgroundTuner()
        return _tuner


Adopt = Callable[[TuningReply, Sequence[Any]], CompiledGraph | None]
"""Returns the graph compiled as decided and verified on these arguments; None if the served one must stay."""


def swappable(served: CompiledGraph, job: TuningJob, adopt: Adopt) -> CompiledGraph:
    """Returns a graph that is served as it is, until the first call after its job is done swaps it."""
    run, pending, is_done, lock = served, True, job.done.is_set, threading.Lock()

    def call(*arguments: Any) -> Any:  # on the hot path of the model
        nonlocal run, pending
        if pending and is_done() and lock.acquire(blocking=False):  # other threads go on as they are
            try:
                if pending and job.reply is not None and job.reply.decisions:
                    run = adopt(job.reply, arguments) or served
                pending = False
            finally:
                lock.release()
        return run(*arguments)

    return call
