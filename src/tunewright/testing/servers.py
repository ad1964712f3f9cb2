"""Real servers to test against: throw-away PostgreSQL, Redis and our service, as processes on free loopback ports."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tunewright.errors import TunewrightError

PATIENCE = 120.0
"""Seconds a server may take to come up, or to go down when asked to: it only ends what would hang."""

SUPERUSER = "postgres"
"""The user that owns every database, and whom PostgreSQL runs as where we are root: it refuses to be root itself."""


_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class NoServer(TunewrightError):
    """A server that cannot be started."""


class Server:
    """A server that can be stopped, started again, killed, and frozen so that it accepts but never answers.

    It keeps its port and its files from one start to the next, and ends with the thread that started it. What it says
    is in `log`.
    """

    def __init__(self, location: str, command: Sequence[str], log: Path, ready: Callable[[int], bool]) -> None:
        self.location, self.log = location, log
        self.user: str | None = None
        self.farewell = signal.SIGTERM
        self._command, self._ready = command, ready
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pids(self) -> list[int]:
        """The process and its children, none if it does not run."""
        if self._process is None or self._process.poll() is not None:
            return []
        return [self._process.pid, *_children(self._process.pid)]

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                user=self.user,
                group=self.user,
                extra_groups=None if self.user is None else [],
                start_new_session=True,  # Ctrl-C is for the tests, which then stop it in order
                preexec_fn=self._die_with_us,  # noqa: PLW1509 - two calls into the kernel, which no thread can hold up
            )
        deadline = time.monotonic() + PATIENCE
        while not self._ready(self._process.pid):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                said = self.log.read_text(errors="replace")[-2000:]
                raise NoServer(f"{self._command[0]} did not come up; it said: {said.strip() or 'nothing'}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End it in order; by force if it takes too long."""
        if self._process is None:
            return
        self.thaw()
        self._signal(self.farewell, self.pids[:1])
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()

    def restart(self) -> None:
        """End it, in whatever state it is, and start it again."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """End it and all its children at once, as a power cut would, and wait until they are gone."""
        pids = self.pids
        self._signal(signal.SIGKILL, pids)
        if self._process is not None:
            self._process.wait()
        while any(_alive(pid) for pid in pids):
            time.sleep(0.01)

    def freeze(self) -> None:
        """Stop it in its tracks: connections are still accepted, by the kernel, and nothing is answered."""
        self._signal(signal.SIGSTOP, self.pids)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT, self.pids)

    def _die_with_us(self) -> None:
        """Have the kernel end this process when the thread that started it does, however that ends."""
        _libc.prctl(_PR_SET_PDEATHSIG, self.farewell)

    @staticmethod
    def _signal(number: signal.Signals, pids: Sequence[int]) -> None:
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue  # it went by itself


@contextmanager
def redis(folder: Path, *options: str, fsync: bool = False) -> Iterator[Server]:
    """A Redis with its files in `folder`; with `fsync` it keeps what it acknowledges, as a record of truth would.

    Further `options` are those of its command line.
    """
    program, port = program_at("redis-server", "redis-server"), _free_port()
    folder.mkdir(parents=True, exist_ok=True)
    kept = ("--appendonly", "yes", "--appendfsync", "always") if fsync else ("--appendonly", "no")
    command = (program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "", *kept, *options)
    with _running(Server(f"redis://127.0.0.1:{port}/0", command, folder / "log", lambda _: _answers(port))) as server:
        yield server


@contextmanager
def postgres(folder: Path, *options: str, fsync: bool = True) -> Iterator[Server]:
    """A PostgreSQL with its files in `folder`, which others than its owner must be able to enter if we are root.

    It is as durable as it is by default, unless `fsync` is False. Further `options` are settings: `max_connections=9`.
    """
    program, port = program_at("postgres", "postgresql"), _free_port()
    user = SUPERUSER if os.geteuid() == 0 else None
    data = folder / "data"
    folder.mkdir(parents=True, exist_ok=True)
    if not data.exists():
        _initialise(program, data, user)
    settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", *([] if fsync else ["fsync=off"]), *options]
    command = (program, "-D", str(data), "-p", str(port), *(word for name in settings for word in ("-c", name)))
    location = f"postgresql://{SUPERUSER}@127.0.0.1:{port}/postgres"
    server = Server(location, command, folder / "log", lambda pid: _says_ready(data / "postmaster.pid", pid))
    server.user = user
    server.farewell = signal.SIGINT  # its fast way: sessions are ended, not waited for
    with _running(server):
        yield server


@contextmanager
def service(folder: Path, *options: str, store: str = "", scheme: str = "http") -> Iterator[Server]:
    """Our service before the store at a location, by default a SQLite file in `folder`; `options` are its own."""
    port = _free_port()
    folder.mkdir(parents=True, exist_ok=True)
    place = store or str(folder / "store.sqlite")
    command = (sys.executable, "-m", "tunewright", "serve", "--store", place, "--port", str(port), *options)
    location = f"{scheme}://127.0.0.1:{port}"
    with _running(Server(location, command, folder / "log", lambda _: _listens(port))) as server:
        yield server


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


@contextmanager
def _running(server: Server) -> Iterator[Server]:
    server.start()
    try:
        yield server
    finally:
        server.kill()  # an orderly end writes everything to the disk, for no one


def _initialise(program: str, data: Path, user: str | None) -> None:
    """Make the files of a PostgreSQL, its password none: it listens to this machine alone, and not for long."""
    data.mkdir(mode=0o700)
    if user is not None:
        shutil.chown(data, user)
    initdb = str(Path(os.path.realpath(program)).with_name("initdb"))
    command = (initdb, "-D", str(data), "-U", SUPERUSER, "-A", "trust", "--no-locale", "-E", "UTF8", "--no-sync")
    groups = None if user is None else list[str]()
    done = subprocess.run(
        command, cwd="/", user=user, group=user, extra_groups=groups, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NoServer(f"no database can be made in {data}: {(done.stderr or done.stdout).strip()}")


def program_at(name: str, package: str) -> str:
    """Where a program is; PostgreSQL's hide in a folder of their version on Debian."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(map(str, reversed(versions))))
    if found is None:
        raise NoServer(f"there is no program {name!r}; install it, for example: apt-get install {package}")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    """Whether a Redis answers at `port`: one that still loads its files says so instead."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as line:
            line.sendall(b"PING\r\n")
            return line.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def _says_ready(note: Path, pid: int) -> bool:
    """Whether a PostgreSQL says in its own note that it takes connections."""
    try:
        lines = note.read_text().splitlines()
    except OSError:
        return False
    return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"


def _children(parent: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[1]) == parent:
            found.append(int(folder.name))
    return found


def _alive(pid: int) -> bool:
    """Whether a process still runs; one that only waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
