"""Worker processes that run replays in parallel, each pinned to a core."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path

import msgspec

from tunewright import errors
from tunewright.errors import PluginError, TunewrightError
from tunewright.replay.ledger import TraceLog
from tunewright.replay.runs import ReplayJob, RunKey, Trace, run_job
from tunewright.replay.tables import RecordingFile, StoreJournal, TableSource
from tunewright.stores import serialization

OnProgress = Callable[[int, int], None]
"""Called with the number of traces, and how many of them were in the log before."""


def collect_traces(
    jobs: Sequence[ReplayJob], log: TraceLog, *, workers: int, fresh: bool = False, after: OnProgress | None = None
) -> list[Trace]:
    """Returns the trace of every job, in order: from the log, else replayed and logged. `fresh` ignores the log."""
    traces = {} if fresh else log.lookup(job.key for job in jobs)
    missing = [job for job in jobs if serialization.encode(job.key) not in traces]
    known = len(jobs) - len(missing)
    if after:
        after(known, known)
    for count, trace in enumerate(run_jobs(missing, workers), start=known + 1):
        log.add(trace)
        traces[serialization.encode(trace.key)] = trace
        if after:
            after(count, known)
    return [traces[serialization.encode(job.key)] for job in jobs]


def run_jobs(jobs: Sequence[ReplayJob], count: int) -> Iterator[Trace]:
    """Yields traces as they are finished by `count` workers; a single one is this process."""
    if min(count, len(jobs)) <= 1:
        yield from map(run_job, jobs)
        return
    queue = iter(jobs)
    cores = sorted(os.sched_getaffinity(0))
    workers = [_Worker(cores[i % len(cores)]) for i in range(min(count, len(jobs)))]
    try:
        busy = {worker.pipe: worker for worker, job in zip(workers, queue, strict=False) if worker.submit(job)}
        while busy:
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                yield busy[pipe].receive()
                if (job := next(queue, None)) is None:
                    del busy[pipe]
                else:
                    busy[pipe].submit(job)
    finally:
        for worker in workers:
            worker.stop()


class _Request(msgspec.Struct, frozen=True):
    """A job as it is sent: JSON, so that neither side can make the other run code."""

    key: RunKey
    origin: tuple[str, ...]
    sources: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, job: ReplayJob) -> _Request:
        return cls(job.key, _pack_source(job.table), tuple(map(_pack_source, job.prior_tables)))

    def job(self) -> ReplayJob:
        """Returns the job."""
        return ReplayJob(self.key, _unpack_source(self.origin), tuple(map(_unpack_source, self.sources)))


class _Reply(msgspec.Struct, frozen=True):
    """A trace, or the class and the message of an error."""

    trace: Trace | None = None
    error: str = ""
    message: str = ""


def _pack_source(source: TableSource) -> tuple[str, ...]:
    if isinstance(source, RecordingFile):
        return (str(source.path),)
    return source.location, source.kernel, source.key


def _unpack_source(parts: tuple[str, ...]) -> TableSource:
    return RecordingFile(Path(parts[0])) if len(parts) == 1 else StoreJournal(*parts)


class _Worker:
    """A process that runs jobs one after the other."""

    def __init__(self, core: int) -> None:
        context = get_context("spawn")
        self.pipe, child_pipe = context.Pipe()
        self._process = context.Process(target=_worker_main, args=(child_pipe,), daemon=True)
        with _pin_child(core):
            self._process.start()
        child_pipe.close()
        self._job: ReplayJob | None = None

    def submit(self, job: ReplayJob) -> bool:
        """Send a job. Returns True."""
        self._job = job
        self.pipe.send_bytes(serialization.encode(_Request.of(job)))
        return True

    def receive(self) -> Trace:
        """Returns the trace of the job; raises its error."""
        assert self._job is not None
        try:
            reply = serialization.decode(self.pipe.recv_bytes(), _Reply)
        except EOFError:
            key = self._job.key
            raise PluginError(
                f"a worker died while {key.strategy!r} searched {self._job.table.name} with seed {key.seed}, "
                "perhaps out of memory; run the same command with --workers 1: finished runs are kept"
            ) from None
        if reply.trace is None:
            raise getattr(errors, reply.error, TunewrightError)(reply.message)
        return reply.trace

    def stop(self) -> None:
        """Stop the process."""
        self.pipe.close()
        self._process.terminate()
        self._process.join()


@contextmanager
def _pin_child(core: int) -> Iterator[None]:
    """Pin processes started inside to one core, so that numpy uses one thread, and block SIGINT in them."""
    resource_tracker.ensure_running()  # starting it would unblock SIGINT
    cores = os.sched_getaffinity(0)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _worker_main(pipe: Connection) -> None:
    """Worker process: receives jobs and sends traces or errors until the pipe is closed."""
    while True:
        try:
            request = serialization.decode(pipe.recv_bytes(), _Request)
        except EOFError:
            return
        try:
            reply = _Reply(run_job(request.job()))
        except TunewrightError as error:
            reply = _Reply(error=type(error).__name__, message=str(error))
        pipe.send_bytes(serialization.encode(reply))
