"""Seat: a process in which implementations wait for their turn, with deadlines and a memory limit."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tunewright.bench.far import Anchor, Asked, Measure, Note, Ready, Stumbled, Survey, Task
from tunewright.errors import BackendError, SettingsError
from tunewright.measure.attempt import Limits
from tunewright.model.trial import Kind
from tunewright.pools.child import Channel
from tunewright.pools.isolate import GLANCE, SLOW_START, THREAD_VARIABLES, fate, last_words, resident
from tunewright.sharing import wire

_FAR = "from tunewright.bench.far import main; main()"

LEAK = 64 << 20
"""Bytes that a seat may grow in a bout before it is said to leak, if it grows in most of its turns."""


@dataclass(frozen=True)
class Build:
    """Where implementations come from: an interpreter, folders it looks into first, and functions that give more."""

    python: str = sys.executable
    paths: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()

    @classmethod
    def at(cls, place: str, providers: tuple[str, ...] = ()) -> Build:
        """A build by what was typed: a checkout (its `src`, if it has one), an environment, or an interpreter."""
        path = Path(place)
        if path.is_file() and os.access(path, os.X_OK):
            return cls(str(path.absolute()), (), providers)
        if (path / "bin" / "python").exists():
            return cls(str((path / "bin" / "python").absolute()), (), providers)
        if not path.is_dir():
            raise SettingsError(f"no build at {place}; name a checkout, an environment, or its bin/python")
        inner = path / "src" if (path / "src").is_dir() else path
        return cls(sys.executable, (str(inner.resolve()),), providers)

    def search_path(self) -> str:
        """For PYTHONPATH: of another interpreter only its own folders, since ours are not made for it."""
        ours = [entry or os.getcwd() for entry in sys.path] if self.python == sys.executable else []
        return os.pathsep.join([*self.paths, *ours])


def processors(threads: int, sitting: int = 0) -> tuple[int, ...]:
    """As many of ours as there are threads; other ones in another sitting."""
    ours = sorted(os.sched_getaffinity(0))
    return tuple(sorted({ours[(sitting * threads + i) % len(ours)] for i in range(threads)}))


@dataclass
class Seat:
    """The near side of such a process: asks, and waits no longer than it may."""

    build: Build
    limits: Limits
    processors: tuple[int, ...] = (0,)
    stage: str = ""
    _since: float = 0.0
    _base: int = 0
    _peak: int = 0
    _sizes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the seat
        ours, theirs = socket.socketpair()
        said = dict.fromkeys(THREAD_VARIABLES, str(len(self.processors)))
        with theirs:
            self._process = subprocess.Popen(
                [self.build.python, "-c", _FAR, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env={**os.environ, **said, "PYTHONPATH": self.build.search_path()},  # noqa: TID251 - handed on
                start_new_session=True,
            )
        # All who are compared run on the same processors, which others may keep busier than the rest.
        os.sched_setaffinity(self._process.pid, self.processors)
        self._channel = Channel(ours)

    def ask(self, do: Asked) -> Note:
        """The answer; a mishap of whoever is asked is raised as Stumbled, and ends the seat where it must."""
        self.stage, self._since = "", time.monotonic()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it died; what follows says how
            self._channel.send(Task(do, self.build.providers))
        if isinstance(do, Ready):
            self._sizes.clear()
        while True:
            note = self._heard(do)
            if note.stage is not None:
                self.stage, self._since = note.stage, time.monotonic()
                if self.stage == "support":  # what came before, the arguments, is not the candidate's
                    self._base = self._peak = resident(self._process.pid)
                continue
            if note.broken is not None:
                self.close()
                raise BackendError(note.broken)
            if note.mishap is not None:
                raise Stumbled(note.mishap.kind, note.mishap.stage, note.mishap.reason)
            return note

    def _heard(self, do: Asked) -> Note:
        """The next message, before the deadline of the present stage."""
        self._channel.sock.settimeout(GLANCE)
        while (body := self._channel.take()) is None:
            self._peak = max(self._peak, resident(self._process.pid))
            try:
                alive = self._channel.fill()
            except TimeoutError:
                if time.monotonic() - self._since > self._allowed(do):
                    self.close()
                    raise Stumbled(Kind.HUNG, self.stage or "time", f"no end within {self._allowed(do):g} s") from None
                continue
            if not alive:
                raise self._dead(do)
        return wire.decode(body, Note)

    def _allowed(self, do: Asked) -> float:
        starting = isinstance(do, Ready | Anchor) and not self.stage
        if starting or self.stage == "prepare" or isinstance(do, Survey | Measure):
            return SLOW_START  # imports, and the reference: not the candidate's doing
        return self.limits.build if self.stage in ("build", "support") else self.limits.run

    def _dead(self, do: Asked) -> Stumbled | BackendError:
        code, said = self._process.wait(), last_words(self._output)
        used, limit = self._peak - self._base, self.limits.memory
        stage = self.stage or "time"
        self.close()
        if stage == "prepare" or isinstance(do, Survey | Measure):
            return BackendError(f"a process ended before it could try anything ({fate(code)}){said}")
        if used > limit / 2:
            return Stumbled(
                Kind.MEMORY, stage, f"it used {used >> 20:,} of {limit >> 20:,} MiB, then {fate(code)}{said}"
            )
        return Stumbled(Kind.CRASHED, stage, f"{fate(code)}{said}")

    def look(self) -> None:
        """Look at the seat's memory after a turn; raise Stumbled if it has kept growing."""
        self._sizes.append(resident(self._process.pid))
        grown = [late - early for early, late in zip(self._sizes, self._sizes[1:], strict=False)]
        total = self._sizes[-1] - self._sizes[0]
        if total > LEAK and sum(step > 0 for step in grown) > len(grown) / 2:
            raise Stumbled("leaked", "time", f"it grew by {total >> 20:,} MiB in {len(grown)} rounds")

    @property
    def gone(self) -> bool:
        """Whether nobody sits here any more."""
        return self._output.closed

    def close(self) -> None:
        """End the process and whatever it started."""
        if self.gone:
            return
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                self._process.kill()
            self._process.wait()
        self._channel.sock.close()
        self._output.close()
