"""Runs a command once and reads its times: wall, CPU, and how long it waited for a processor that others used."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from tunewright.cpu_usage import read_schedstat
from tunewright.errors import SettingsError

WALL, UNDELAYED = "wall", "undelayed"
"""Clocks of a process: all of its time; and its time less what it waited for a processor."""

CLOCK_NAMES = {UNDELAYED: "wall clock, less the time spent waiting for a processor"}
"""How a clock is called in a sentence, if not by its name."""

SHELL = {"|", "||", "&&", "&", ">", ">>", "<", "2>", "2>&1"}
"""Operators of a shell; a command that is run without one would get them as arguments."""

OTHER_TASKS_SHARE, OTHER_TASKS_SECONDS = 0.02, 1e-3
"""CPU time of other threads and children up to which a process counts as a single task."""


class ProcessTimes(NamedTuple):
    """Seconds of a process or of one sample in it; `delay` is None where the system does not tell.

    `cpu` is that of all threads and children, `own_cpu` that of the thread whose `delay` it is: the time in which it
    was ready to run, and other tasks had the processors.
    """

    wall: float
    cpu: float
    own_cpu: float = 0.0
    delay: float | None = None

    @property
    def is_single_task(self) -> bool:
        """Whether one thread did all the work, so that its delay was caused by other programs alone."""
        others = self.cpu - self.own_cpu
        return self.delay is not None and others <= max(OTHER_TASKS_SECONDS, OTHER_TASKS_SHARE * self.cpu)

    @property
    def undelayed(self) -> float:
        """The time that it would have taken without other programs; it has the time spent computing and waiting.

        The wall time, if that is not known.
        """
        if self.delay is None or not self.is_single_task:
            return self.wall
        return max(self.wall - self.delay, self.own_cpu, 1e-9)

    def seconds(self, clock: str) -> float:
        """Returns the time by one of the two clocks."""
        return self.undelayed if clock == UNDELAYED else self.wall


def choose_clock(times: Sequence[ProcessTimes]) -> str:
    """Returns the clock by which all of these can be compared."""
    return UNDELAYED if times and all(each.is_single_task for each in times) else WALL


def split_command(typed: str) -> list[str]:
    """Returns the words of a command. Raises SettingsError if it needs a shell, or is not there."""
    try:
        words = shlex.split(typed)
    except ValueError as error:
        raise SettingsError(f"cannot read the command {typed!r}: {error}") from error
    if operators := SHELL.intersection(words):
        raise SettingsError(f"{typed!r}: {min(operators)} needs a shell; write: sh -c {shlex.quote(typed)}")
    if not words or (shutil.which(words[0]) is None and not words[0].startswith(f".{os.sep}")):
        raise cannot_run(typed, "there is no such command")
    return words


def cannot_run(typed: str, reason: str) -> SettingsError:
    """Returns the error for a command that cannot be started."""
    return SettingsError(
        f"cannot run {typed!r}: {reason}; a command is typed in quotes with its arguments ('python a.py'), "
        "a Python function as FILE.py:NAME, a C function as FILE.c:NAME"
    )


def describe_failure(typed: str, status: int, errors: IO[bytes]) -> str:
    """Returns how a command failed, with the last line it complained about, and what to do."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4096))
    lines = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    ending = f"ended with exit status {status}" if status > 0 else f"was killed by {signal.Signals(-status).name}"
    last = f": {lines[-1]}" if lines else ""
    wrapped = f"sh -c {shlex.quote(f'{typed} || true')}"
    return f"{typed!r} {ending}{last}. Run it by itself to see more; if it may fail, race: {wrapped}"


def time_command(
    words: Sequence[str],
    errors: IO[bytes],
    *,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
    limit: float | None = None,
) -> tuple[int, ProcessTimes]:
    """Runs a command to its end; returns its exit status and its times. Raises OSError if it cannot be started.

    What it prints is discarded; what it complains about goes to `errors`. After `limit` seconds it is killed, with
    everything in its session. An interrupt kills it too.
    """
    process, began = None, time.perf_counter()
    try:
        with defer_interrupt():
            # Ctrl-C must reach this process alone, which then kills what the command started.
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd=folder,
                env=environ,
                start_new_session=True,
            )
        with _killed_after(process, limit):
            return _wait(process, began)
    finally:
        if process is not None and process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(process: subprocess.Popen[bytes], began: float) -> tuple[int, ProcessTimes]:
    """Waits for the end of a command; its times are read before the system forgets them."""
    before = read_schedstat("thread-self")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    wall = time.perf_counter() - began
    after, own = read_schedstat("thread-self"), read_schedstat(str(process.pid))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    if own is None or before is None or after is None:
        return process.returncode, ProcessTimes(wall, cpu)
    # This process, too, may have waited for a processor, to see that the command had ended.
    return process.returncode, ProcessTimes(wall, cpu, own[0], own[1] + after[1] - before[1])


@contextlib.contextmanager
def _killed_after(process: subprocess.Popen[bytes], limit: float | None) -> Iterator[None]:
    """Kills the session of a command that does not end in time."""
    if limit is None:
        yield
        return
    timer = threading.Timer(limit, _kill_session, [process])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def defer_interrupt() -> Iterator[None]:
    """Delays Ctrl-C: a process interrupted while it is being started could not be killed."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if received:
        signal.raise_signal(signal.SIGINT)
