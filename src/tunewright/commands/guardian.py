"""The guardian of commands: starts and times them, ends what they leave running, and removes their folders.

It is a process that needs only Python's own library. It outlives a worker that is killed: when the pipe to it is
closed, it ends the running command with all its children, and removes the folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

MAX_PRINTED = 256 << 20
"""Bytes that a command may print."""

LOOK_SECONDS = 0.25
"""Seconds after which the size of what was printed is looked at."""

END_SECONDS = 20.0
"""Seconds in which everything that a command left must have ended."""

SET_CHILD_SUBREAPER = 36


class HungUp(Exception):
    """Raised when whoever asked for a run is gone."""


class Guardian:
    """Runs one command at a time."""

    def __init__(self) -> None:
        self._woken, wake = os.pipe()
        for end in (self._woken, wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)
        self._poll.register(0, 0)  # only whether it was hung up

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """Runs a command to its end; returns its status, times, and how many processes it left."""
        if job["memory"] >= 0:
            resource.setrlimit(resource.RLIMIT_DATA, (job["memory"], resource.getrlimit(resource.RLIMIT_DATA)[1]))
        if job["file"] >= 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (job["file"], resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        with (
            open(job["stdin"] or os.devnull, "rb") as given,
            open(job["stdout"], "wb") as printed,
            open(job["stderr"], "wb") as complaints,
        ):
            began = time.perf_counter()
            try:
                process = subprocess.Popen(
                    job["words"],
                    cwd=job["folder"],
                    env=job["environment"],
                    stdin=given,
                    stdout=printed,
                    stderr=complaints,
                    start_new_session=True,
                )
            except OSError as error:
                return {"error": f"{error.strerror or error}: {job['words'][0]}"}
            try:
                return self._wait(process, began, job["timeout"], (printed, complaints))
            finally:
                process.returncode = process.returncode or 0
                end_descendants(process.pid)

    def _wait(
        self, process: subprocess.Popen[bytes], began: float, timeout: float | None, files: tuple[IO[bytes], ...]
    ) -> dict[str, Any]:
        limit = float("inf") if timeout is None else began + timeout
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            now = time.perf_counter()
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                left = end_descendants(pid)
                cpu = usage.ru_utime + usage.ru_stime
                return {"status": process.returncode, "seconds": now - began, "cpu_seconds": cpu, "left": left}
            if now >= limit:
                return {"killed": f"it did not end within {timeout:.3g} s"}
            if sum(os.fstat(file.fileno()).st_size for file in files) > MAX_PRINTED:
                return {"killed": f"it printed more than {MAX_PRINTED >> 20} MB"}
            self._sleep(min(LOOK_SECONDS, limit - now))

    def _sleep(self, seconds: float) -> None:
        """Waits until a child ends; raises HungUp if nobody waits for the result."""
        for number, events in self._poll.poll(1000 * seconds):
            if number == 0 and events & (select.POLLHUP | select.POLLERR):
                raise HungUp
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 4096)


def end_descendants(group: int) -> int:
    """Kills a process group and every other descendant of this process; returns how many were still running.

    Descendants whose parent ended are children of this process, also those that made a session of their own.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return len(killed)
        for pid in _children():
            killed.add(pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(5e-4)
    return len(killed)


def _children() -> list[int]:
    """Returns the processes whose parent is this one."""
    found, own = [], os.getpid()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == own:
                    found.append(int(entry))
    return found


def remove(path: Path) -> None:
    """Removes a file or a folder, also one that forbids it."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        path.chmod(stat.S_IRWXU)
        for inner in list(path.iterdir()):
            remove(inner)
        path.rmdir()


def main() -> None:
    """Answers requests, a line of JSON each, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # workers ignore it, and commands inherit what is ignored
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(1))
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1)
    root = Path(tempfile.mkdtemp(prefix="tunewright-command-", dir=sys.argv[1] or None))
    try:
        guardian = Guardian()
        os.write(1, json.dumps({"root": str(root)}).encode() + b"\n")
        for line in sys.stdin.buffer:
            os.write(1, json.dumps(guardian.run(json.loads(line))).encode() + b"\n")
    except (HungUp, BrokenPipeError):
        pass
    finally:
        remove(root)


if __name__ == "__main__":
    main()
