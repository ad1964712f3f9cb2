"""Crew: replays done side by side by processes, each on a core of its own."""

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
from tunewright.laboratory.ledger import Ledger
from tunewright.laboratory.replays import Job, Stamp, Trace, perform
from tunewright.laboratory.tables import InStore, OnDisk, Origin
from tunewright.sharing import wire

Done = Callable[[int, int], None]
"""Told how many traces there are, and how many of them were known before."""


def traces(
    wanted: Sequence[Job], ledger: Ledger, *, workers: int, fresh: bool = False, after: Done | None = None
) -> list[Trace]:
    """The trace of every job, in order: from the ledger where it has it, else replayed now and kept there."""
    found = {} if fresh else ledger.known(job.stamp for job in wanted)
    missing = [job for job in wanted if wire.encode(job.stamp) not in found]
    known = len(wanted) - len(missing)
    if after:
        after(known, known)
    for count, trace in enumerate(run(missing, workers), start=known + 1):
        ledger.add(trace)
        found[wire.encode(trace.stamp)] = trace
        if after:
            after(count, known)
    return [found[wire.encode(job.stamp)] for job in wanted]


def run(wanted: Sequence[Job], workers: int) -> Iterator[Trace]:
    """Traces as they are finished; one worker is this process."""
    if min(workers, len(wanted)) <= 1:
        yield from map(perform, wanted)
        return
    rest = iter(wanted)
    cores = sorted(os.sched_getaffinity(0))
    hands = [_Hand(cores[i % len(cores)]) for i in range(min(workers, len(wanted)))]
    try:
        busy = {hand.pipe: hand for hand, job in zip(hands, rest, strict=False) if hand.give(job)}
        while busy:
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                yield busy[pipe].take()
                if (job := next(rest, None)) is None:
                    del busy[pipe]
                else:
                    busy[pipe].give(job)
    finally:
        for hand in hands:
            hand.end()


class _Request(msgspec.Struct, frozen=True):
    """A job as it travels: JSON, so that neither side can make the other run code."""

    stamp: Stamp
    origin: tuple[str, ...]
    sources: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, job: Job) -> _Request:
        return cls(job.stamp, _words(job.origin), tuple(map(_words, job.sources)))

    def job(self) -> Job:
        """The job again."""
        return Job(self.stamp, _origin(self.origin), tuple(map(_origin, self.sources)))


class _Reply(msgspec.Struct, frozen=True):
    """A trace, or the class and the message of an error."""

    trace: Trace | None = None
    error: str = ""
    message: str = ""


def _words(origin: Origin) -> tuple[str, ...]:
    if isinstance(origin, OnDisk):
        return (str(origin.path),)
    return origin.location, origin.kernel, origin.key


def _origin(words: tuple[str, ...]) -> Origin:
    return OnDisk(Path(words[0])) if len(words) == 1 else InStore(*words)


class _Hand:
    """A process that does one job after the other."""

    def __init__(self, core: int) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        with _inherited(core):
            self._process.start()
        theirs.close()
        self._job: Job | None = None

    def give(self, job: Job) -> bool:
        """Let it do a job."""
        self._job = job
        self.pipe.send_bytes(wire.encode(_Request.of(job)))
        return True

    def take(self) -> Trace:
        """What came of the job."""
        assert self._job is not None
        try:
            reply = wire.decode(self.pipe.recv_bytes(), _Reply)
        except EOFError:
            stamp = self._job.stamp
            raise PluginError(
                f"a process died while {stamp.strategy!r} searched {self._job.origin.name} with seed {stamp.seed}, "
                "perhaps for want of memory; run the same command with --workers 1: what is done is kept"
            ) from None
        if reply.trace is None:
            raise getattr(errors, reply.error, TunewrightError)(reply.message)
        return reply.trace

    def end(self) -> None:
        """Stop it, whatever it does."""
        self.pipe.close()
        self._process.terminate()
        self._process.join()


@contextmanager
def _inherited(core: int) -> Iterator[None]:
    """What a process started inside inherits: one core, so that its numpy takes one thread, and no Ctrl-C."""
    resource_tracker.ensure_running()  # starting it lets Ctrl-C through again
    cores = os.sched_getaffinity(0)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _work(pipe: Connection) -> None:
    """The far side: jobs come, traces or errors go, until the pipe is closed."""
    while True:
        try:
            request = wire.decode(pipe.recv_bytes(), _Request)
        except EOFError:
            return
        try:
            reply = _Reply(perform(request.job()))
        except TunewrightError as error:
            reply = _Reply(error=type(error).__name__, message=str(error))
        pipe.send_bytes(wire.encode(reply))
