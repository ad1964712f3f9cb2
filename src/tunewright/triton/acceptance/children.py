"""Runs work in a fresh process, which a fault of the device may end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

LOG_BYTES = 20_000
"""How much of the end of a log is kept."""

MAIN = "from tunewright.triton.acceptance.child_main import main; main()"


class ChildTask(msgspec.Struct, frozen=True):
    """What a process does: `work` is `module:name`; it gets the device and the arguments.

    `device` is what the process makes its device of: the `module:name` of a function, and its arguments.
    """

    work: str
    device: tuple[str, ...]
    arguments: dict[str, Any] = {}


class Ended(NamedTuple):
    """How a process ended: with a result, by its deadline, or otherwise; and what it wrote."""

    result: bytes | None
    hung: bool
    status: int
    log: str
    seconds: float


class Child:
    """A fresh process that does a task and hands its result over in a file.

    It is not forked: threads and a context of the device that this process has do not survive a fork.
    """

    def __init__(self, task: ChildTask, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        written, self._output = folder / f"{name}.task.json", folder / f"{name}.json"
        written.write_bytes(msgspec.json.encode(task))
        self._output.unlink(missing_ok=True)
        self._log, self._began = folder / f"{name}.log", time.monotonic()
        search_path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", MAIN, str(written), str(self._output)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": search_path},  # noqa: TID251 - handed on
                start_new_session=True,
            )

    def wait(self, seconds: float) -> Ended:
        """Waits until it ends, and ends it, with all that it started, after its deadline."""
        hung = False
        try:
            self._process.wait(max(0.0, self._began + seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            hung = True
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        result = self._output.read_bytes() if self._output.exists() else None
        log = self._log.read_bytes()[-LOG_BYTES:].decode(errors="replace")
        return Ended(result, hung, status, log, time.monotonic() - self._began)


def run_in_child(task: ChildTask, folder: Path, name: str, seconds: float) -> Ended:
    """Does a task in a process of its own."""
    return Child(task, folder, name).wait(seconds)
