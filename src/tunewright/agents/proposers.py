"""Proposers: a program that reads questions and writes answers, a socket, a recording; each with a limit of time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tunewright.errors import SettingsError, WireError
from tunewright.strategies.external import Proposer

ANSWER_SECONDS = 30.0
"""How long an answer may take, if nothing else is said."""

MAX_ANSWER = 1 << 20
"""Bytes of an answer; a longer one is none."""

WRITE_SECONDS = 5.0
"""How long a proposer may not read what it is asked."""

SOCKET = "unix:"


class StreamProposer:
    """A proposer at the other end of two descriptors: one line of JSON out, one line back."""

    def __init__(self, write: Callable[[bytes], object], number: int, seconds: float = ANSWER_SECONDS) -> None:
        self._write, self._number, self._seconds = write, number, seconds
        self._buffer, self._asked = b"", 0
        self._ended = False

    def ask(self, question: Mapping[str, Any]) -> Any:
        """Returns the answer to this very question; None if there is none in time, or it is no JSON."""
        if self._ended:
            return None
        self._asked += 1
        try:
            self._write(json.dumps({"ask": self._asked, **question}).encode() + b"\n")
        except (OSError, ValueError):
            self._ended = True
            return None
        deadline = time.monotonic() + self._seconds
        while (line := self._read_line(deadline)) is not None:
            try:
                answer = json.loads(line)
            except (ValueError, RecursionError):
                return {"no JSON": line[:200].decode(errors="replace")}
            # A late answer to an earlier question is not one to this.
            if not isinstance(answer, dict) or answer.get("ask", self._asked) == self._asked:
                return answer
        return None

    def _read_line(self, deadline: float) -> bytes | None:
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._number], [], [], left)[0]:
                return None
            data = os.read(self._number, 1 << 16)
            if not data or len(self._buffer) > MAX_ANSWER:
                self._ended = True
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


class ProcessProposer(StreamProposer):
    """A program that is started without a shell, and ended with the search."""

    def __init__(self, command: str, seconds: float = ANSWER_SECONDS) -> None:
        try:
            self._process = subprocess.Popen(
                shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise SettingsError(f"cannot run the proposer {command!r}: {error}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        stdin = self._process.stdin.fileno()
        os.set_blocking(stdin, False)  # one that reads nothing must not stop the search
        super().__init__(lambda data: _write_all(stdin, data), self._process.stdout.fileno(), seconds)

    def close(self) -> None:
        """Kills the program and everything in its session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class SocketProposer(StreamProposer):
    """Whoever listens at a socket of this machine."""

    def __init__(self, path: str, seconds: float = ANSWER_SECONDS) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise SettingsError(f"nobody listens at {path}: {error.strerror}") from error
        self._socket.setblocking(False)
        super().__init__(lambda data: _write_all(self._socket.fileno(), data), self._socket.fileno(), seconds)

    def close(self) -> None:
        """Hangs up."""
        self._socket.close()


def _write_all(number: int, data: bytes) -> None:
    """Writes to a descriptor that may be full; raises OSError if it stays so."""
    deadline = time.monotonic() + WRITE_SECONDS
    while data:
        if not select.select([], [number], [], max(0.0, deadline - time.monotonic()))[1]:
            raise TimeoutError("the proposer reads nothing")
        data = data[os.write(number, data[:4096]) :]


class RecordingProposer:
    """Writes down every question with its answer, so that a search can be repeated without the proposer."""

    def __init__(self, inner: Proposer, path: Path) -> None:
        self._inner, self._path = inner, path

    def ask(self, question: Mapping[str, Any]) -> Any:
        """Returns the answer of the other proposer."""
        answer = self._inner.ask(question)
        with self._path.open("a") as file:
            file.write(json.dumps({"question": question, "answer": answer}) + "\n")
        return answer


class RecordedProposer:
    """Gives the answers of a recording, in their order."""

    def __init__(self, path: Path) -> None:
        try:
            lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
            self._answers = [line["answer"] for line in lines]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WireError(
                f"{path} is no recording of proposals: {error}; record one with --record-proposals"
            ) from error

    def ask(self, question: Mapping[str, Any]) -> Any:
        """Returns the next answer; None after the last."""
        return self._answers.pop(0) if self._answers else None


@contextlib.contextmanager
def open_proposer(place: str, seconds: float = ANSWER_SECONDS, record: Path | None = None) -> Iterator[Proposer]:
    """Yields the proposer at a place: "unix:PATH", a recording FILE.jsonl, or a command."""
    if place.endswith(".jsonl") and Path(place).is_file():
        yield RecordedProposer(Path(place))
        return
    proposer = (
        SocketProposer(place.removeprefix(SOCKET), seconds)
        if place.startswith(SOCKET)
        else ProcessProposer(place, seconds)
    )
    try:
        yield RecordingProposer(proposer, record) if record is not None else proposer
    finally:
        proposer.close()
