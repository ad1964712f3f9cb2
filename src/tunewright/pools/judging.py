"""Judging across processes: expected results and the trusted clock stay out of the reach of candidates."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tunewright.cases.stored_results import StoredResult, read_results, write_results
from tunewright.cases.validation import Content
from tunewright.errors import BackendError, TunewrightError
from tunewright.measure.clock import CLOCKS
from tunewright.measure.evaluator import Evaluator
from tunewright.measure.judge import ClaimedTime, KernelJudge
from tunewright.measure.kernel_workload import KernelWorkload
from tunewright.pools.worker_process import START_TIMEOUT, Channel, WorkerProcess, describe_exit
from tunewright.stores import serialization

SLOWEST_CLOCK, CLOCK_SLACK = 0.5, 1e-3
"""A worker's clock may show this share of the CPU time that its parent measures, less so many seconds."""


class JudgeRequest(msgspec.Struct, frozen=True, tag="results"):
    """Results of a launch on some contents, to be compared; arrays are in the file at `path`."""

    content: Content
    results: dict[str, StoredResult]
    path: str


class JudgeStart(msgspec.Struct, frozen=True, tag="start"):
    """Asks whether the first expected results are there."""


class ClockReading(msgspec.Struct, frozen=True, tag="clock"):
    """The beginning or the end of launches by which a worker's clock is checked; the end has what the clock shows."""

    seconds: float | None = None
    clock: str = ""


class GridQuestion(msgspec.Struct, frozen=True, tag="grid"):
    """Asks for the grid of a launch, which only the process of the caller can compute: `values` are plain arguments.

    The `others` are those of the caller.
    """

    values: dict[str, bool | int | float | str | None]
    others: tuple[str, ...]


class JudgeReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong, the seconds that expected results take, and why the judge itself is `broken`; or a grid."""

    problem: str | None = None
    seconds: float = 0.0
    broken: str | None = None
    grid: tuple[int, ...] = ()


Question = JudgeStart | JudgeRequest | ClockReading | GridQuestion
"""What a worker asks its parent."""


class RemoteJudge:
    """The judge of a worker: sends results to its parent, which has them compared in another process."""

    def __init__(self, send: Callable[[Question], JudgeReply], workload: KernelWorkload, file: Path) -> None:
        self._send, self._workload, self._file = send, workload, file
        self._local: KernelJudge | None = None
        self.seconds = 0.0

    def prepare(self) -> None:
        """Waits until the first expected results are there."""
        self.seconds = self._send(JudgeStart()).seconds

    def compare(self, content: Content, results: Mapping[str, Any]) -> str | None:
        """Returns what is wrong with results; those that are not plain data are compared here."""
        stored = write_results(self._file, results)
        if stored is None:
            return self._compare_here(content, results)
        reply = self._send(JudgeRequest(content, stored, str(self._file)))
        self.seconds = reply.seconds
        return reply.problem

    def _compare_here(self, content: Content, results: Mapping[str, Any]) -> str | None:
        """Compares in this process; tells the parent, which counts verdicts."""
        self._send(JudgeStart())
        self._local = self._local or KernelJudge(self._workload)
        problem, self.seconds = self._local.compare(content, results), self._local.seconds
        return problem

    def check_clock(self, claimed: ClaimedTime) -> str | None:
        """Returns how the clock of this process deviates from the CPU time that its parent sees."""
        self._send(ClockReading())
        return self._send(ClockReading(*claimed())).problem


class JudgeProcess:
    """A process in which only the reference, or else the default config, runs: it knows the expected results."""

    def __init__(self, start: Callable[[], WorkerProcess]) -> None:
        self._process = start()
        self._first: JudgeReply | None = None

    @property
    def seconds(self) -> float:
        """Seconds that the first expected results took; 0 if they are not there yet."""
        return self._first.seconds if self._first else 0.0

    def ask(self, request: JudgeRequest | JudgeStart) -> JudgeReply:
        """Returns the verdict. Raises BackendError if the reference or the default config fails."""
        self._first = self._first or self._reply()
        if isinstance(request, JudgeStart):
            return self._first
        self._process.send(request)
        return self._reply()

    def _reply(self) -> JudgeReply:
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            try:
                alive = self._process.receive(1.0)
            except TimeoutError:
                continue
            if (body := self._process.channel.pop_message()) is not None:
                reply = serialization.decode(body, JudgeReply)
                if reply.broken is not None:
                    self.close()
                    raise BackendError(reply.broken)
                return reply
            if not alive:
                self._raise_dead()
        raise BackendError(
            f"the expected results were not there after {START_TIMEOUT:g} s; is the reference or the import slow?"
        )

    def _raise_dead(self) -> None:
        code, tail = self._process.wait(), self._process.output_tail()
        cause = "the reference or, without one, the default config crashes"
        if code == -signal.SIGKILL:
            cause = "it was killed from outside; is there enough memory?"
        raise BackendError(
            f"the process that computes the expected results died ({describe_exit(code)}){tail}; {cause}"
        )

    def close(self) -> None:
        """Ends the process."""
        if not self._process.closed:
            self._process.close()

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.close()


def serve_judge(channel: Channel, make_evaluator: Callable[[], Evaluator]) -> None:
    """Answers requests until the parent hangs up; does nothing if the evaluator runs no kernel with a backend."""
    try:
        workload = getattr(make_evaluator(), "workload", None)
        if not isinstance(workload, KernelWorkload):
            return
        judge = KernelJudge(workload)
        judge.prepare()
        channel.send(JudgeReply(seconds=judge.seconds))
        while (body := channel.wait_message()) is not None:
            request = serialization.decode(body, JudgeRequest)
            results = read_results(Path(request.path), request.results)
            problem = judge.compare(request.content, results)
            channel.send(JudgeReply(problem, judge.seconds))
    except TunewrightError as error:
        channel.send(JudgeReply(broken=str(error)))


class ClockWitness:
    """Compares what a worker's clock shows with the CPU time that this process sees it use."""

    def __init__(self, pid: int) -> None:
        self._pid, self._began = pid, 0.0

    def take(self, reading: ClockReading) -> str | None:
        """Takes the beginning of a check, or its end; returns what is wrong with the clock."""
        now = _cpu_seconds(self._pid)
        if reading.seconds is None:
            self._began = now
            return None
        used = now - self._began
        if reading.clock not in CLOCKS:
            return None
        if reading.clock == "wall":  # CPU time may be that of several threads
            used /= os.cpu_count() or 1
        if reading.seconds >= SLOWEST_CLOCK * used - CLOCK_SLACK:
            return None
        return f"the clock in its process shows {reading.seconds:.2g} s for launches that used {used:.2g} s of CPU time"


def _cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process; 0 if the system does not tell."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # as clock_getcpuclockid does it on Linux
    except (OSError, ValueError):
        return 0.0
