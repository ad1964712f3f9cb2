"""Isolate: an attempt in a child process, with a deadline and a memory limit."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tunewright.cases.inputs import Inputs
from tunewright.errors import BackendError
from tunewright.measure.attempt import Bench, Limits
from tunewright.measure.race import Race, Terms
from tunewright.model.trial import Entry, Failure, Kind, Stage, Trial
from tunewright.pools.child import Channel, Final, Note, Order, Task, serve, settle
from tunewright.remarks import Remarks
from tunewright.sharing import wire
from tunewright.spaces.config import Config

log = Remarks(__name__)

SLOW_START = 300.0
LONG_WAIT = 3600.0
GLANCE = 0.02
"""Seconds between looks at a worker's memory."""

# Not `-m`: the child must be the very module that a kernel loaded there imports.
_CHILD = "from tunewright.pools.child import main; main()"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True)
class Isolated:
    """An attempt that travels: where its kernel is, and on what to try it; no space, no lambda, no array.

    A kernel that cannot be found by name (made in a shell, or inside a function) has no `target`; its workers are
    forked from this process, which has it in memory. One that `builds` does no more than that.
    """

    bench: Callable[[], Bench]
    cases: tuple[Inputs, ...]
    cache: Path
    target: str | None = None
    threads: int = 1
    limits: Limits = field(default_factory=Limits)
    builds: bool = False

    def __call__(self, entry: Entry) -> Trial:
        """Try one config in a worker of its own."""
        worker = Worker(self)
        try:
            worker.give(entry)
            while (trial := worker.collect(worker.patience())) is None:
                pass
            return trial
        finally:
            worker.close()

    def race(self, configs: Sequence[Config], terms: Terms, kept: Sequence[int] = ()) -> Race | None:
        """The configs raced in one worker; None if it does not come to an end."""
        worker = Worker(self)
        try:
            return worker.race(configs, terms, kept)
        finally:
            worker.close()


class Worker:
    """A child process that tries one config after another, until one of them misbehaves."""

    def __init__(self, attempt: Isolated) -> None:
        self.attempt = attempt
        self.entry: Entry | None = None
        self.spent = self.unborn = False
        self.built: tuple[str, ...] | None = None
        self._stage: Stage | None = None
        self._since = time.monotonic()
        self._base = self._peak = 0
        self._built = 0.0
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._channel, self._pid = self._start()

    def _start(self) -> tuple[Channel, int]:
        ours, theirs = socket.socketpair()
        with theirs:
            if self.attempt.target is None:
                return Channel(ours), self._fork(ours, theirs)
            threads = dict.fromkeys(THREAD_VARIABLES, str(self.attempt.threads))
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env={**os.environ, **threads, "PYTHONPATH": os.pathsep.join(sys.path)},  # noqa: TID251 - handed on
                start_new_session=True,
            )
        channel, attempt = Channel(ours), self.attempt
        assert attempt.target is not None
        path = [entry or os.getcwd() for entry in sys.path]
        channel.send(Order(path, attempt.target, attempt.cases, attempt.limits, str(attempt.cache), attempt.builds))
        return channel, self._process.pid

    def _fork(self, ours: socket.socket, theirs: socket.socket) -> int:
        with warnings.catch_warnings():
            # Newer Pythons warn of forking beside threads; the child only runs kernels, and then exits at once.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            settle()
            ours.close()
            for number in (1, 2):
                os.dup2(self._output.fileno(), number)
            serve(Channel(theirs), self.attempt.bench, self.attempt.limits)
        finally:
            os._exit(0)

    def fileno(self) -> int:
        """For `select`: readable when the worker has something to say."""
        return self._channel.sock.fileno()

    def give(self, entry: Entry) -> None:
        """Hand over the next config; a worker has one at a time."""
        self.entry, self.built, self._since = entry, None, time.monotonic()
        self._base = self._peak = self._resident()
        self._send(Task(entry))

    def race(self, configs: Sequence[Config], terms: Terms, kept: Sequence[int] = ()) -> Race | None:
        """Race configs that are known to work; None if the worker dies or does not end in time."""
        self._send(Task(final=Final(tuple(configs), terms, tuple(kept))))
        limits = self.attempt.limits
        deadline = time.monotonic() + SLOW_START + limits.build + limits.run + 2 * terms.seconds
        self._channel.sock.settimeout(1.0)
        while time.monotonic() < deadline:
            try:
                if not self._channel.fill():
                    return None
            except TimeoutError:
                continue
            while (body := self._channel.take()) is not None:
                note = wire.decode(body, Note)
                if note.race is not None or note.broken is not None:
                    return note.race
        return None

    def _send(self, task: Task) -> None:
        try:
            self._channel.send(task)
        except (BrokenPipeError, ConnectionResetError):
            log.debug("worker %d died before it was given %s", self._pid, task)  # collect() says how

    def patience(self) -> float:
        """Seconds until the deadline of the present stage."""
        return max(0.0, self._deadline() - time.monotonic())

    def _deadline(self) -> float:
        limits = self.attempt.limits
        allowed = {None: SLOW_START, Stage.BUILD: limits.build, Stage.WAIT: LONG_WAIT}.get(self._stage, limits.run)
        return self._since + allowed

    def overdue(self) -> float:
        """Seconds by which the present stage is past its deadline, whoever waits for it."""
        return time.monotonic() - self._deadline()

    def collect(self, timeout: float = 0.0) -> Trial | None:
        """The trial, if the config given is finished, failed, dead or overdue; None if it still runs."""
        self._channel.sock.settimeout(max(min(timeout, GLANCE), 1e-3))
        self._peak = max(self._peak, self._resident())
        try:
            alive = self._channel.fill()
        except TimeoutError:
            return None if self.patience() > 0 else self._overdue()
        while (body := self._channel.take()) is not None:
            note = wire.decode(body, Note)
            if note.broken is not None:
                self.close()
                raise BackendError(note.broken)
            if note.trial is not None:
                # One that wrote where it must not may have broken the worker too: it is not used again.
                self.spent = isinstance(note.trial.outcome, Failure) and note.trial.outcome.stage is not Stage.BUILD
                self._stage = Stage.BUILD
                return note.trial
            if note.built is not None:
                self.built = note.built
                continue
            if self._stage is Stage.BUILD and note.stage is not Stage.BUILD:
                self._built = time.monotonic() - self._since
            if note.ready:
                self._base = self._peak = self._resident()
            self._stage = Stage.BUILD if note.ready else note.stage
            self._since = time.monotonic()
        return None if alive else self._dead()

    def _overdue(self) -> Trial:
        self.close()
        if self._stage is None:
            raise BackendError(f"a worker was not ready after {SLOW_START:g} s; is the reference or the import slow?")
        allowed = self.attempt.limits.build if self._stage is Stage.BUILD else self.attempt.limits.run
        return self._failed(Kind.HUNG, f"it did not end within {allowed:g} s")

    def _dead(self) -> Trial:
        code = self._reap()
        said = self._last_words()
        if self._stage is None and code == -signal.SIGKILL:
            # Not the config's fault: the system or a person ended the worker before it began.
            self.unborn = True
            return self._failed(Kind.CRASHED, f"{fate(code)} before it began{said}")
        if self._stage is None:
            raise BackendError(
                f"a worker died before it could try anything ({fate(code)}){said}; "
                "the reference or, without one, the default config crashes"
            )
        used, limit = self._peak - self._base, self.attempt.limits.memory
        if used > limit / 2:  # seen at the last glance: most programs do not survive an allocation that fails
            return self._failed(
                Kind.MEMORY, f"it used more than {used >> 20:,} of {limit >> 20:,} MiB, then {fate(code)}{said}"
            )
        return self._failed(Kind.CRASHED, f"{fate(code)}{said}")

    def _failed(self, kind: Kind, reason: str) -> Trial:
        self.spent = True
        spent = time.monotonic() - self._since
        built, ran = (spent, 0.0) if self._stage is Stage.BUILD else (self._built, spent)
        assert self.entry is not None
        failure = Failure(self._stage or Stage.BUILD, kind, reason)
        return Trial(self.entry.config, failure, built, ran, at=time.time())

    def _last_words(self) -> str:
        return last_words(self._output)

    def _reap(self) -> int:
        """The exit code of the ended child."""
        if self._pid == 0:
            return 0
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        if self.attempt.target is not None:
            self._process.returncode = code
        self._pid = 0
        return code

    def _resident(self) -> int:
        return resident(self._pid)

    def close(self) -> None:
        """End the child and whatever it started."""
        self.spent = True
        if self._pid:
            try:
                os.killpg(self._pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                os.kill(self._pid, signal.SIGKILL)
            self._reap()
        self._channel.sock.close()
        self._output.close()


def resident(pid: int) -> int:
    """Bytes of memory a process holds now; the peak that the system keeps includes its parent's."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def last_words(output: IO[bytes]) -> str:
    """The end of what a process wrote, to be said after its fate; empty if it wrote nothing."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - 400))
    lines = output.read().decode(errors="replace").split("\n")
    tail = " ".join(line.strip() for line in lines[-6:] if line.strip())
    return f": {tail[-300:]}" if tail else ""


def fate(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"the process exited with status {code}"
    return f"killed by {signal.Signals(-code).name}"
