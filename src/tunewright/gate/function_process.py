"""A raced function in a process of its own: started, asked for samples, and ended; never waited for without a limit."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import msgspec

from tunewright.errors import BackendError
from tunewright.gate import function_main
from tunewright.pools.command_times import ProcessTimes, defer_interrupt

START_SECONDS, SAMPLE_SECONDS = 120.0, 120.0
"""Limits of loading a function with its first calls, and of one sample."""

MAX_LINE = 1 << 16


class NothingToCompare(BackendError):
    """Raised when a function is not there, or cannot be imported, in one of two checkouts."""


class FunctionPlace(msgspec.Struct, frozen=True):
    """Where a function is: its target, the import path, the folder to run in, and what must not be imported.

    No module may come from `foreign`, the other checkout, but for the one file that is `allowed`.
    """

    target: str
    path: tuple[str, ...]
    folder: str
    foreign: str = ""
    allowed: str = ""


class FunctionProcess:
    """A process that has loaded one function; `count` is how many calls make a sample."""

    def __init__(self, place: FunctionPlace) -> None:
        self.place, self.count = place, 1
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._buffer = b""
        with defer_interrupt():
            # By its path and without our packages: nothing but the function is loaded in it.
            self._process = subprocess.Popen(
                [sys.executable, "-P", function_main.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                cwd=place.folder,
                start_new_session=True,
            )

    def start(self) -> None:
        """Loads the function and calls it for the first times. Raises BackendError if that fails."""
        reply = self._ask(json.dumps(msgspec.to_builtins(self.place)), START_SECONDS)
        self.count = int(reply["count"])

    def sample(self, count: int) -> ProcessTimes:
        """Returns the times of one call, over a burst of `count`."""
        reply = self._ask(str(count), SAMPLE_SECONDS)
        return ProcessTimes(reply["wall"], reply["cpu"], reply["own_cpu"], reply["delay"])

    def _ask(self, line: str, limit: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead, and reading says how
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        reply = self._read_line(time.monotonic() + limit)
        if reply is None:
            raise BackendError(
                f"{self.place.target} did not return within {limit:g} s; race something shorter, or call it by itself"
            )
        if not reply:
            raise BackendError(f"{self.place.target} ended its process{self._tail()}; call it by itself to see why")
        value: dict[str, Any] = json.loads(reply)
        if value.get("missing"):
            raise NothingToCompare(f"{value['error']} (in {self.place.folder})")
        if "error" in value:
            raise BackendError(f"{value['error']}. Call it by itself to see more; only what returns is raced")
        return value

    def _read_line(self, deadline: float) -> bytes | None:
        """Returns a line of the process; empty if it ended, None if the time is over."""
        assert self._process.stdout is not None
        number = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            if not select.select([number], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            data = os.read(number, MAX_LINE)
            if not data:
                return b""
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _tail(self) -> str:
        status = self._process.wait()
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 1000))
        lines = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        how = f" ({signal.Signals(-status).name})" if status < 0 else f" (exit status {status})"
        return how + (f": {lines[-1].strip()[:300]}" if lines else "")

    def close(self) -> None:
        """Kills the process and everything in its session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def import_path(root: Path | None, other: Path | None) -> tuple[str, ...]:
    """Returns the import path for a checkout at `root`: this process's, with the folders of `other` replaced by its.

    Folders that `root` does not have, such as an environment that lies in the work tree, stay as they are.
    """
    here = [os.path.abspath(entry) for entry in sys.path]
    if root is None:
        return tuple(here)
    own = [str(folder) for folder in (root / "src", root) if folder.is_dir()]
    if other is None or other == root:
        return tuple(dict.fromkeys([*own, *here]))
    return tuple(dict.fromkeys([*own, *(_moved(Path(entry), other, root) for entry in here)]))


def _moved(entry: Path, other: Path, root: Path) -> str:
    resolved = entry.resolve()
    if not resolved.is_relative_to(other):
        return str(entry)
    moved = root / resolved.relative_to(other)
    return str(moved) if moved.exists() else str(entry)
