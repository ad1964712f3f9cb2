"""Runs commands in folders of their own, through a guardian process that leaves nothing behind."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tunewright.commands import guardian
from tunewright.errors import BackendError

MAX_READ = 16 << 20
"""Bytes of each stream in which a metric is looked for: the last ones."""

TAIL_LINES, TAIL_CHARACTERS = 4, 400

CLOSE_SECONDS = 30.0


class Job(msgspec.Struct, frozen=True):
    """A command to run: its words, what it adds to the environment, a file to read from, and a limit in seconds."""

    words: Sequence[str]
    variables: Mapping[str, str] = {}
    stdin: Path | None = None
    timeout: float | None = None


class Reply(msgspec.Struct, frozen=True):
    """What the guardian says: how a command ended, or why it was killed, or why it could not be started."""

    root: str = ""
    error: str = ""
    killed: str = ""
    status: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    left: int = 0


class Run(msgspec.Struct, frozen=True):
    """A command that ended: its times, and where it wrote what."""

    seconds: float
    cpu_seconds: float
    stdout: Path
    stderr: Path

    def printed(self) -> str:
        """The end of standard output, then that of standard error."""
        return "\n".join(_end_of(path, MAX_READ) for path in (self.stdout, self.stderr))


class Runner:
    """Runs one command at a time, in a folder at a path that stays the same: some programs write it into outputs.

    The guardian is started with the first folder. It ends when this object or its process does.
    """

    def __init__(self, scratch: Path | None = None) -> None:
        self._scratch = scratch
        self._process: subprocess.Popen[bytes] | None = None
        self._root = Path()

    @property
    def root(self) -> Path:
        """The folder that everything lies in; it is removed in the end."""
        if self._process is None:
            # By its path and without site-packages: it starts quickly, and nothing of a kernel is loaded in it.
            words = [sys.executable, "-I", "-S", guardian.__file__, str(self._scratch or "")]
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            weakref.finalize(self, _close, self._process)
            self._root = Path(self._reply().root)
        return self._root

    @property
    def folder(self) -> Path:
        """The folder that commands run in."""
        return self.root / "work"

    def empty(self) -> None:
        """Makes the folder new, and that for temporary files."""
        for path in (self.folder, self.root / "tmp"):
            guardian.remove(path)
            path.mkdir()

    def run(self, job: Job, streams: str = "run") -> Run:
        """Runs a command to its end. Raises BackendError if it fails or is killed."""
        stdout, stderr = (self.root / f"{streams}.{name}" for name in ("stdout", "stderr"))
        line = {
            "words": list(job.words),
            "folder": str(self.folder),
            "environment": _environment(job.variables, self.folder, self.root / "tmp"),
            "stdin": str(job.stdin or ""),
            "stdout": str(stdout),
            "stderr": str(stderr),
            "timeout": job.timeout,
            "memory": resource.getrlimit(resource.RLIMIT_DATA)[0],
            "file": resource.getrlimit(resource.RLIMIT_FSIZE)[0],
        }
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")  # takes names of files that are no text
            self._process.stdin.flush()
            reply = self._reply()
        except BaseException:  # an interrupt: the guardian ends the command
            self.close()
            raise
        if problem := reply.error or reply.killed or describe_status(reply.status):
            raise BackendError(f"{problem}{tail(stderr) or tail(stdout)}")
        return Run(reply.seconds, reply.cpu_seconds, stdout, stderr)

    def _reply(self) -> Reply:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BackendError("the process that runs commands ended; is there enough memory, and room on the disk?")
        return msgspec.json.decode(line, type=Reply)

    def close(self) -> None:
        """Ends the command that runs and everything it started, and removes the folder."""
        process, self._process = self._process, None
        if process is not None:
            _close(process)
        if self._root != Path() and self._root.exists():  # the guardian itself was killed
            guardian.remove(self._root)


def _close(process: subprocess.Popen[bytes]) -> None:
    """Hangs up, and waits until the guardian has removed everything."""
    for stream in (process.stdin, process.stdout):
        if stream is not None and not stream.closed:
            try:
                stream.close()
            except OSError:  # what was not sent yet is of no interest any more
                continue
    if process.returncode is None:
        try:
            process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _environment(variables: Mapping[str, str], folder: Path, temporary: Path) -> dict[str, str]:
    own = {"PWD": str(folder), "TMPDIR": str(temporary)}
    return {**os.environ, **own, **variables}  # noqa: TID251 - handed on


def describe_status(status: int) -> str:
    """Returns how a command failed; empty if it did not."""
    if status == 0:
        return ""
    if status == -signal.SIGXFSZ:
        return "it wrote a file that is larger than `memory_mb` allows"
    return f"it was killed by signal {-status}" if status < 0 else f"it exited with status {status}"


def tail(path: Path) -> str:
    """Returns the last lines of a file, to follow a reason; empty if it has none."""
    lines = [line.strip() for line in _end_of(path, 4096).splitlines() if line.strip()]
    text = "; ".join(lines[-TAIL_LINES:])[-TAIL_CHARACTERS:]
    return f": {text}" if text else ""


def _end_of(path: Path, size: int) -> str:
    """Returns the end of a file as text; empty if there is no file."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - size))
        return file.read().decode(errors="replace")
