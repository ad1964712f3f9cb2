"""Runs a stage in a process of its own, which a fault of the device may end."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from tunewright.stores import files

POLL_SECONDS = 0.01
LOG_BYTES = 20_000
"""How much of the end of a log is kept."""


class Ended(NamedTuple):
    """How a process ended: with a result, by its deadline, or otherwise; and what it wrote."""

    result: bytes | None
    hung: bool
    status: int
    log: str
    seconds: float


class Child:
    """A forked process that does some work and hands its result over in a file.

    The parent must not have used the device: a context does not survive a fork.
    """

    def __init__(self, work: Callable[[], msgspec.Struct | dict[str, object]], folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._output, self._log = folder / f"{name}.json", folder / f"{name}.log"
        self._output.unlink(missing_ok=True)
        self._began = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forks beside threads: the child runs one stage
            self._number = os.fork()
        if not self._number:
            self._live(work)

    def _live(self, work: Callable[[], msgspec.Struct | dict[str, object]]) -> None:
        """Is the life of the child; never returns."""
        status = 1
        try:
            faulthandler.disable()  # a stage that aborts is a result
            os.setsid()
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            body = msgspec.json.encode(work())
            files.write_atomic(self._output, body)
            status = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode(errors="replace"))
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def wait(self, seconds: float) -> Ended:
        """Waits until it ends, and ends it, with all that it started, after its deadline."""
        status, hung = 0, False
        while (waited := os.waitpid(self._number, os.WNOHANG))[0] == 0:
            if time.monotonic() - self._began > seconds:
                hung = True
                _kill(self._number)
                waited = os.waitpid(self._number, 0)
                break
            time.sleep(POLL_SECONDS)
        status = os.waitstatus_to_exitcode(waited[1])
        result = self._output.read_bytes() if self._output.exists() else None
        log = self._log.read_bytes()[-LOG_BYTES:].decode(errors="replace") if self._log.exists() else ""
        return Ended(result, hung, status, log, time.monotonic() - self._began)


def _kill(number: int) -> None:
    """Ends a process with all that it started."""
    try:
        os.killpg(number, signal.SIGKILL)
    except ProcessLookupError:  # it has no group of its own yet
        os.kill(number, signal.SIGKILL)


def run_in_child(
    work: Callable[[], msgspec.Struct | dict[str, object]], folder: Path, name: str, seconds: float
) -> Ended:
    """Does some work in a process of its own."""
    return Child(work, folder, name).wait(seconds)
