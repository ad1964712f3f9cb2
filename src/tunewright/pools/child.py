"""Child: the far side of an isolated worker: finds the kernel, tries configs, reports stages and trials."""

from __future__ import annotations

import ctypes
import faulthandler
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tunewright.cases.inputs import Inputs
from tunewright.errors import BackendError, TunewrightError
from tunewright.measure.attempt import Bench, Limits
from tunewright.measure.race import Race, Terms
from tunewright.model.trial import Entry, Failure, Kind, Stage, Trial
from tunewright.pools.loading import enter_worker, find
from tunewright.sharing import wire
from tunewright.spaces.config import Config


class Order(msgspec.Struct, frozen=True):
    """What a spawned worker is told first: where the kernel is, on what to try it, and whether to build and no more."""

    path: list[str]
    target: str
    cases: tuple[Inputs, ...]
    limits: Limits
    cache: str
    builds: bool = False


class Final(msgspec.Struct, frozen=True):
    """A race among configs that are known to work."""

    configs: tuple[Config, ...]
    terms: Terms
    kept: tuple[int, ...] = ()


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker is to do: try an entry, or hold a race."""

    entry: Entry | None = None
    final: Final | None = None


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker says: it is ready, it reached a stage, it has a result, or the program itself is broken.

    One that only builds names the artefacts it `built`.
    """

    ready: bool = False
    stage: Stage | None = None
    trial: Trial | None = None
    race: Race | None = None
    built: tuple[str, ...] | None = None
    broken: str | None = None


class Channel:
    """Whole messages over a socket: four bytes of length, then JSON."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = b""

    def send(self, value: Any) -> None:
        """Send one message."""
        body = wire.encode(value)
        self.sock.sendall(struct.pack("<I", len(body)) + body)

    def take(self) -> bytes | None:
        """A whole message already received, if any."""
        if len(self._buffer) < 4:
            return None
        (length,) = struct.unpack("<I", self._buffer[:4])
        if len(self._buffer) < 4 + length:
            return None
        body, self._buffer = self._buffer[4 : 4 + length], self._buffer[4 + length :]
        return body

    def fill(self) -> bool:
        """Receive what there is; False when the other side is gone."""
        try:
            data = self.sock.recv(1 << 16)
        except ConnectionError:
            return False
        self._buffer += data
        return bool(data)

    def wait(self) -> bytes | None:
        """The next message; None when the other side is gone."""
        while (body := self.take()) is None:
            if not self.fill():
                return None
        return body


def serve(channel: Channel, make: Callable[[], Bench], limits: Limits, *, builds: bool = False) -> None:
    """Answer configs with trials, or with what is built of them, until the other side hangs up."""
    try:
        bench = make()
        if not builds:
            bench.prepare()
    except TunewrightError as error:
        channel.send(Note(broken=str(error)))
        return
    channel.send(Note(ready=True))
    while (body := channel.wait()) is not None:
        # Comparing results takes memory too, in double precision, and is not the candidate's doing.
        limit_memory(limits.memory + 10 * bench.nbytes)
        task = wire.decode(body, Task)
        try:
            if task.entry is not None and builds:
                note = _built(bench, task.entry.config)
            elif task.entry is not None:
                note = Note(trial=bench(task.entry, lambda stage: channel.send(Note(stage=stage))))
            elif task.final is not None:
                note = Note(race=bench.race(task.final.configs, task.final.terms, task.final.kept))
        except TunewrightError as error:
            channel.send(Note(broken=str(error)))
            return
        channel.send(note)


def _built(bench: Bench, config: Config) -> Note:
    """The artefacts of a config that are files in the cache, by name; what the backend refuses is a trial."""
    began = time.perf_counter()
    try:
        made = [getattr(artifact, "inner", artifact) for artifact in bench.built(config)]  # a variant's is wrapped
    except TunewrightError as error:
        failure = Failure(Stage.BUILD, Kind.REFUSED, str(error))
        return Note(trial=Trial(config, failure, time.perf_counter() - began, at=time.time()))
    return Note(built=tuple(dict.fromkeys(artifact.name for artifact in made if isinstance(artifact, Path))))


def limit_memory(more: int) -> None:
    """Allow `more` bytes of data beyond what the process has now."""
    if not sys.platform.startswith("linux"):
        return
    status = Path("/proc/self/status").read_text()
    now = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (now + more, resource.RLIM_INFINITY))


def settle() -> None:
    """Make this process a good child: it dies with its parent, leaves no core, ignores the terminal's Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.disable()
    enter_worker()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform.startswith("linux"):
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def main() -> None:
    """Entry of a spawned worker: the socket's number is the only argument."""
    settle()
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    body = channel.wait()
    if body is None:
        return
    order = wire.decode(body, Order)
    sys.path[:] = order.path

    def make() -> Bench:
        try:
            bench: Bench = find(order.target).bench(order.cases, Path(order.cache))
        except TunewrightError:
            raise
        except Exception as error:
            raise BackendError(f"loading {order.target} raised {type(error).__name__}: {error}") from error
        return bench

    serve(channel, make, order.limits, builds=order.builds)
