"""Temporary servers for tests, on free loopback ports: PostgreSQL, Redis, an OCI registry, the Tunewright service."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tunewright.errors import TunewrightError

PATIENCE = 120.0
"""Seconds that a server may take to start or stop."""

SUPERUSER = "postgres"
"""Owner of every database, and the user that PostgreSQL runs as if we are root, which it refuses."""


_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class NoServer(TunewrightError):
    """Raised when a server cannot be started."""


class Server:
    """A server that can be stopped, restarted, killed, and frozen so that it accepts connections but never answers.

    It keeps its port and files between starts, and ends with the thread that started it. Its output is in `log`.
    """

    def __init__(self, location: str, command: Sequence[str], log: Path, ready: Callable[[int], bool]) -> None:
        self.location, self.log = location, log
        self.user: str | None = None
        self.farewell = signal.SIGTERM
        self._command, self._ready = command, ready
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pids(self) -> list[int]:
        """Ids of the process and its children; empty if it does not run."""
        if self._process is None or self._process.poll() is not None:
            return []
        return [self._process.pid, *_children(self._process.pid)]

    def start(self) -> None:
        """Start the server and wait until it answers."""
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
                start_new_session=True,  # Ctrl-C goes to the tests, which then stop it
                preexec_fn=self._die_with_us,  # noqa: PLW1509 - two calls into the kernel, which no thread can hold up
            )
        deadline = time.monotonic() + PATIENCE
        while not self._ready(self._process.pid):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                output = self.log.read_text(errors="replace")[-2000:]
                raise NoServer(f"{self._command[0]} did not start; its output: {output.strip() or 'none'}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop the server; kill it if that takes too long."""
        if self._process is None:
            return
        self.thaw()
        self._signal(self.farewell, self.pids[:1])
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()

    def restart(self) -> None:
        """Stop the server and start it again."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """Kill the server and its children, and wait until they are gone."""
        pids = self.pids
        self._signal(signal.SIGKILL, pids)
        if self._process is not None:
            self._process.wait()
        while any(_is_alive(pid) for pid in pids):
            time.sleep(0.01)

    def freeze(self) -> None:
        """Suspend the server: the kernel still accepts connections, but nothing is answered."""
        self._signal(signal.SIGSTOP, self.pids)

    def thaw(self) -> None:
        """Resume the server."""
        self._signal(signal.SIGCONT, self.pids)

    def _die_with_us(self) -> None:
        """Make the kernel end this process when the thread that started it ends."""
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
    """Starts a Redis with its files in `folder`; with `fsync`, acknowledged writes are durable.

    `options` are command-line options of Redis.
    """
    program, port = program_at("redis-server", "redis-server"), _free_port()
    folder.mkdir(parents=True, exist_ok=True)
    kept = ("--appendonly", "yes", "--appendfsync", "always") if fsync else ("--appendonly", "no")
    command = (program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "", *kept, *options)
    with _running(
        Server(f"redis://127.0.0.1:{port}/0", command, folder / "log", lambda _: _redis_answers(port))
    ) as server:
        yield server


@contextmanager
def postgres(folder: Path, *options: str, fsync: bool = True) -> Iterator[Server]:
    """Starts a PostgreSQL with its files in `folder`, which other users must be able to enter if we are root.

    It is durable unless `fsync` is False. `options` are settings such as `max_connections=9`.
    """
    program, port = program_at("postgres", "postgresql"), _free_port()
    user = SUPERUSER if os.geteuid() == 0 else None
    data = folder / "data"
    folder.mkdir(parents=True, exist_ok=True)
    if not data.exists():
        _initialize(program, data, user)
    settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", *([] if fsync else ["fsync=off"]), *options]
    command = (program, "-D", str(data), "-p", str(port), *(word for name in settings for word in ("-c", name)))
    location = f"postgresql://{SUPERUSER}@127.0.0.1:{port}/postgres"
    server = Server(location, command, folder / "log", lambda pid: _is_ready(data / "postmaster.pid", pid))
    server.user = user
    server.farewell = signal.SIGINT  # fast shutdown: sessions are ended
    with _running(server):
        yield server


@contextmanager
def service(folder: Path, *options: str, store: str = "", scheme: str = "http") -> Iterator[Server]:
    """Starts the Tunewright service in front of a store, by default a SQLite file in `folder`."""
    port = _free_port()
    folder.mkdir(parents=True, exist_ok=True)
    place = store or str(folder / "store.sqlite")
    command = (sys.executable, "-m", "tunewright", "service", "run", "--store", place, "--port", str(port), *options)
    location = f"{scheme}://127.0.0.1:{port}"
    with _running(Server(location, command, folder / "log", lambda _: _listens(port))) as server:
        yield server


@contextmanager
def registry(folder: Path, *, htpasswd: str = "", options: Mapping[str, Any] | None = None) -> Iterator[Server]:
    """Starts an OCI registry with its files in `folder`, open to everybody unless lines of `htpasswd` are given.

    Its location is `oci://127.0.0.1:PORT`. `options` are more settings of its configuration file.
    """
    program, port = program_at("docker-registry", "docker-registry"), _free_port()
    folder.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "blobs")}},
        "http": {"addr": f"127.0.0.1:{port}", "secret": "for this test only"},
        **(options or {}),
    }
    if htpasswd:
        (folder / "htpasswd").write_text(htpasswd)
        settings["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
    (folder / "config.yml").write_text(json.dumps(settings))  # JSON is YAML
    command = (program, "serve", str(folder / "config.yml"))
    with _running(Server(f"oci://127.0.0.1:{port}", command, folder / "log", lambda _: _listens(port))) as server:
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
        server.kill()  # an orderly stop would write everything to disk for nothing


def _initialize(program: str, data: Path, user: str | None) -> None:
    """Create the files of a PostgreSQL without a password: it is temporary and listens to this machine only."""
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
        raise NoServer(f"cannot create a database in {data}: {(done.stderr or done.stdout).strip()}")


def program_at(name: str, package: str) -> str:
    """Returns the path of a program; on Debian those of PostgreSQL are in a folder of their version."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(map(str, reversed(versions))))
    if found is None:
        raise NoServer(f"no program {name!r}; install it, for example: apt-get install {package}")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _redis_answers(port: int) -> bool:
    """Returns whether a Redis answers at `port` and has loaded its files."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as line:
            line.sendall(b"PING\r\n")
            return line.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def _is_ready(note: Path, pid: int) -> bool:
    """Returns whether the PID file of a PostgreSQL says that it is ready."""
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


def _is_alive(pid: int) -> bool:
    """Returns whether a process still runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
