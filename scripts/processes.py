"""Run a program with a time limit, and leave none of its processes behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

GRACE = 10.0
"""Seconds between asking a process to end and killing it."""


@dataclass(frozen=True)
class Ended:
    """How a program ended: `status` is None if it was stopped at its limit, `left` are processes it left running."""

    status: int | None
    seconds: float
    left: int


def run(
    command: Sequence[str],
    limit: float,
    *,
    environment: Mapping[str, str],
    folder: Path,
    output: IO[bytes],
    errors: IO[bytes] | None = None,
) -> Ended:
    """Run a program. At the limit, or if this program is interrupted, everything that it started is stopped."""
    mark = f"NIGHTLY_{uuid.uuid4().hex}"
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**environment, mark: "1"},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors or subprocess.STDOUT,
        start_new_session=True,
    )
    status: int | None = None
    try:
        with suppress(subprocess.TimeoutExpired):
            status = process.wait(max(0.0, limit))
    finally:
        _stop_group(process)
        left = _stop_marked(mark)
    return Ended(status, time.monotonic() - began, left)


def _stop_group(process: subprocess.Popen[bytes]) -> None:
    """Ask the program's process group to end, then kill it."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _stop_marked(mark: str) -> int:
    """Kill the program's descendants outside of its process group: servers, for example. How many there were."""
    found: set[int] = set()
    for _ in range(5):  # one that is killed may just have started another
        new = _marked(mark) - found
        if not new:
            break
        found |= new
        for number in new:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
    return len(found)


def _marked(mark: str) -> set[int]:
    """Processes that inherited a variable. None where the system has no /proc."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and mark.encode() in (entry / "environ").read_bytes():
                found.add(int(entry.name))
    return found - {os.getpid()}
