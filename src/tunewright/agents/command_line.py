"""Runs the command line for an agent: in one folder, with a limit of time and of output, one measurement at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tunewright.errors import BackendError

QUICK_SECONDS = 60.0
"""Limit of a tool that measures nothing."""

GRACE_SECONDS = 15.0
"""Seconds for a search that is interrupted to keep what it found."""

FINISH_SECONDS = 60.0
"""Seconds, at most, for what a tool does beside measuring: imports, builds, the race of finalists."""

MAX_BYTES = 4 << 20
"""Bytes of output after which a command is killed."""

MAX_ANSWER = 20_000
"""Characters of an answer to an agent."""

OnLine = Callable[[str], Awaitable[None]]
"""Called with each line that a command writes to standard error."""


class Done(msgspec.Struct, frozen=True):
    """A command that ended: its exit status, what it printed, and whether it was stopped for lack of time."""

    status: int
    printed: str
    complaints: str
    out_of_time: bool = False

    def json(self) -> Any:
        """Returns the JSON that it printed. Raises BackendError with what it complained about, if it printed none."""
        with contextlib.suppress(ValueError):
            return json.loads(self.printed)
        raise BackendError(self.reason())

    def reason(self) -> str:
        """Returns why it failed."""
        text = (self.complaints.strip() or self.printed.strip() or f"exit status {self.status}")[-2000:]
        return f"stopped after the time given; {text}" if self.out_of_time else text


class CommandLine:
    """Runs `tunewright` in a folder."""

    def __init__(self, folder: Path, max_seconds: float, store: str | None = None) -> None:
        self.folder, self.max_seconds = folder, max_seconds
        self._environ = {**os.environ, **({"TUNEWRIGHT_STORE": store} if store else {})}  # noqa: TID251 - handed on
        self._quick = asyncio.Semaphore(2)
        self.measuring = asyncio.Lock()

    def limit(self, seconds: float) -> float:
        """Returns the seconds that a tool may take: what is asked for, but no more than the server allows."""
        return min(max(1.0, float(seconds)), self.max_seconds)

    def patience(self, seconds: float) -> float:
        """Returns the seconds after which a tool that measures for so long is stopped; some are for finishing."""
        return seconds + min(FINISH_SECONDS, self.max_seconds)

    async def ask(self, *words: str) -> Any:
        """Returns the JSON that a command prints which measures nothing."""
        async with self._quick:
            return (await self.run(words, QUICK_SECONDS)).json()

    async def measure(self, words: Sequence[str], seconds: float, on_line: OnLine | None = None) -> Done:
        """Runs a command that measures. Raises BackendError if another one does: they would disturb each other."""
        if self.measuring.locked():
            raise BackendError(
                "another tool is measuring; wait until it has ended, since they would disturb each other"
            )
        async with self.measuring:
            return await self.run(words, seconds, on_line)

    async def start(self, words: Sequence[str]) -> asyncio.subprocess.Process:
        """Starts a command without a shell, in a session of its own."""
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # nothing in the folder is imported in place of a library
            "-m",
            "tunewright",
            *words,
            cwd=self.folder,
            env=self._environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    async def run(self, words: Sequence[str], seconds: float, on_line: OnLine | None = None) -> Done:
        """Runs a command to its end, or for so many seconds and some grace; then it is killed."""
        process = await self.start(words)
        return await self.finish(process, seconds, on_line)

    async def finish(self, process: asyncio.subprocess.Process, seconds: float, on_line: OnLine | None = None) -> Done:
        """Waits for a command. One that takes too long is interrupted, so that it keeps what it found, then killed."""
        assert process.stdout is not None
        assert process.stderr is not None
        printed, complaints = bytearray(), bytearray()
        reading = asyncio.gather(
            _read(process, process.stdout, printed, None), _read(process, process.stderr, complaints, on_line)
        )
        out_of_time = False
        try:
            _, waiting = await asyncio.wait([reading], timeout=seconds)
            if waiting:
                out_of_time = True
                _signal(process, signal.SIGINT)
                await asyncio.wait([reading], timeout=GRACE_SECONDS)
        finally:  # also if the client hangs up
            _signal(process, signal.SIGKILL)
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
            status = await process.wait()
        said, complained = (bytes(data).decode(errors="replace") for data in (printed, complaints))
        return Done(status, said, complained, out_of_time)


async def _read(
    process: asyncio.subprocess.Process, stream: asyncio.StreamReader, into: bytearray, on_line: OnLine | None
) -> None:
    """Collects what a command writes; kills it if that is too much."""
    told = 0
    while data := await stream.read(1 << 16):
        into += data
        if len(into) > MAX_BYTES:
            _signal(process, signal.SIGKILL)
            into[:] = into[:MAX_BYTES]
            return
        while on_line is not None and (end := into.find(b"\n", told)) >= 0:
            line, told = bytes(into[told:end]).decode(errors="replace").strip(), end + 1
            if line:
                await on_line(line[:MAX_LINE])


MAX_LINE = 300
"""Characters of a line of progress."""


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def bounded(value: Any, hint: str = "ask for less") -> str:
    """Returns a value as JSON of limited length. Raises BackendError if it is longer."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > MAX_ANSWER:
        raise BackendError(f"the answer has {len(text):,} characters, and {MAX_ANSWER:,} are allowed; {hint}")
    return text
