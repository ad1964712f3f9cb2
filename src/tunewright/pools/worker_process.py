"""Worker processes: how a child is started, limited, talked to and ended; used by the process pool and by `bench`."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol

from tunewright.pools.kernel_loader import mark_as_worker
from tunewright.stores import serialization

START_TIMEOUT = 300.0
"""Seconds a worker may take for its imports and the reference result."""

POLL_SECONDS = 0.02
"""Seconds between samples of a worker's memory."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Channel:
    """Whole messages over a socket: four bytes of length, then JSON. It reads so many bytes at once."""

    def __init__(self, sock: socket.socket, most: int = 1 << 16) -> None:
        self.sock, self._most = sock, most
        self._buffer = b""

    def send(self, message: Any) -> None:
        """Sends one message."""
        body = serialization.encode(message)
        self.sock.sendall(struct.pack("<I", len(body)) + body)

    def pop_message(self) -> bytes | None:
        """Returns the next message already received, if it is complete."""
        if len(self._buffer) < 4:
            return None
        (length,) = struct.unpack("<I", self._buffer[:4])
        if len(self._buffer) < 4 + length:
            return None
        body, self._buffer = self._buffer[4 : 4 + length], self._buffer[4 + length :]
        return body

    def receive(self) -> bool:
        """Reads what has arrived; False when the other side has hung up."""
        try:
            data = self.sock.recv(self._most)
        except ConnectionError:
            return False
        self._buffer += data
        return bool(data)

    def wait_message(self) -> bytes | None:
        """Waits for the next message; None when the other side has hung up."""
        while (body := self.pop_message()) is None:
            if not self.receive():
                return None
        return body


class HasExitCode(Protocol):
    """A process that this one did not fork itself."""

    def wait(self) -> int:
        """Waits for its end, and returns its exit code, negative for a signal."""
        ...


Started = tuple[int, HasExitCode | None]
"""The id of a process, and how to wait for it; None if this process forked it."""


class WorkerProcess:
    """A child process in a session of its own: the channel to it, its output, its memory and a stage timer."""

    def __init__(self, start: Callable[[socket.socket, socket.socket, IO[bytes]], Started]) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._exit_code: int | None = None
        self._stage_start = time.monotonic()
        self._memory_base = self._memory_peak = 0
        self._last_growth = 0.0
        parent_sock, child_sock = socket.socketpair()
        self.channel = Channel(parent_sock)
        try:
            with child_sock:
                self.pid, self._handle = start(parent_sock, child_sock, self._output)
        except BaseException:
            parent_sock.close()
            self._output.close()
            raise

    @classmethod
    def spawn(cls, module: str, *, python: str = sys.executable, threads: int, search_path: str) -> WorkerProcess:
        """Starts a new interpreter that calls `main` of a module, with the number of its socket as argument."""
        # Not `-m`: the child must be the very module that a kernel loaded there imports.
        code = f"from {module} import main; main()"
        limits = dict.fromkeys(THREAD_VARIABLES, str(threads))

        def start(parent_sock: socket.socket, child_sock: socket.socket, output: IO[bytes]) -> Started:
            popen = subprocess.Popen(
                [python, "-c", code, str(child_sock.fileno())],
                pass_fds=[child_sock.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **limits, "PYTHONPATH": search_path},  # noqa: TID251 - handed on
                start_new_session=True,
            )
            return popen.pid, popen

        return cls(start)

    @classmethod
    def fork(cls, serve: Callable[[Channel], None]) -> WorkerProcess:
        """Forks this process; the child runs `serve`, and exits with status 1 and a traceback if that raises."""

        def start(parent_sock: socket.socket, child_sock: socket.socket, output: IO[bytes]) -> Started:
            with warnings.catch_warnings():
                # Newer Pythons warn of forking beside threads; the child only runs kernels, and then exits at once.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if not pid:
                parent_sock.close()
                run_forked(serve, child_sock, output.fileno())
            return pid, None

        return cls(start)

    def send(self, message: Any) -> bool:
        """Sends a message; False if the child is dead, which `receive` will show."""
        try:
            self.channel.send(message)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def receive(self, timeout: float) -> bool:
        """Samples the child's memory and reads what it sent; False once it hung up, TimeoutError if nothing came."""
        self.channel.sock.settimeout(timeout)
        if (resident := self.resident_bytes()) > self._memory_peak:
            self._memory_peak, self._last_growth = resident, time.monotonic()
        return self.channel.receive()

    def start_timer(self) -> None:
        """Starts the timer of the present stage again."""
        self._stage_start = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the present stage began."""
        return time.monotonic() - self._stage_start

    def reset_memory(self) -> None:
        """Counts memory from what the child holds now."""
        self._memory_base = self._memory_peak = self.resident_bytes()

    def resident_bytes(self) -> int:
        """Bytes of memory that the child holds now."""
        return resident_bytes(self.pid) if self._exit_code is None else 0

    def wait(self) -> int:
        """Waits for the child to end and returns its exit code, negative for a signal."""
        if self._exit_code is None and self._handle is not None:
            self._exit_code = self._handle.wait()
        elif self._exit_code is None:
            self._exit_code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._exit_code

    def output_tail(self) -> str:
        """The end of what the child wrote, to follow its exit status; empty if it wrote nothing."""
        output = self._output
        output.seek(max(0, output.seek(0, os.SEEK_END) - 400))
        lines = output.read().decode(errors="replace").split("\n")
        tail = " ".join(line.strip() for line in lines[-6:] if line.strip())
        return f": {tail[-300:]}" if tail else ""

    def memory_reason(self, limit: int) -> str | None:
        """Why the child probably died for lack of memory; None if it used less than half of what it may."""
        used = self._memory_peak - self._memory_base
        if used <= limit / 2:  # as last sampled: most programs do not survive an allocation that fails
            return None
        end = describe_exit(self.wait()) + self.output_tail()
        return f"it used more than {used >> 20:,} of {limit >> 20:,} MiB, then {end}"

    def overdue_memory_reason(self, limit: int) -> str | None:
        """Why a child that does not end is short of memory; None unless it used half of it, or much and grows still."""
        used = self._memory_peak - self._memory_base
        is_growing = time.monotonic() - self._last_growth < self.elapsed / 8
        enough = used > limit / 2 or (is_growing and used > limit / 8)
        return f"it used more than {used >> 20:,} of {limit >> 20:,} MiB" if enough else None

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._output.closed

    def close(self) -> None:
        """Kills the child and whatever it started."""
        if self._exit_code is None:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait()
        self.channel.sock.close()
        self._output.close()


def run_forked(serve: Callable[[Channel], None], sock: socket.socket, output: int) -> NoReturn:
    """The life of a forked child; never returns into the code of its parent."""
    status = 1
    try:
        os.setsid()
        configure_child_process()
        for number in (1, 2):
            os.dup2(output, number)
        serve(Channel(sock))
        status = 0
    except BaseException:
        with contextlib.suppress(OSError):
            os.write(2, traceback.format_exc().encode(errors="replace"))
        raise
    finally:
        os._exit(status)


def configure_child_process(*, dies_with_thread: bool = True) -> None:
    """Makes this process die of a file that is too large, without a core dump, and not of Ctrl-C.

    It also dies with its parent: to be exact, with the thread that started it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and code that ignores errors would go on
    faulthandler.disable()
    mark_as_worker()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if dies_with_thread and sys.platform.startswith("linux"):
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def open_child_channel() -> Channel:
    """The channel of a spawned child to its parent: the socket whose number is the only argument."""
    return Channel(socket.socket(fileno=int(sys.argv[1])))


def make_shared_file() -> Path:
    """Returns a file in memory that another process can open, and that ends with this one."""
    if hasattr(os, "memfd_create"):
        return Path(f"/proc/{os.getpid()}/fd/{os.memfd_create('tunewright')}")
    return Path(tempfile.mkdtemp(prefix="tunewright-")) / "shared"


def remove_shared_file(path: Path) -> None:
    """Lets go of a file that `make_shared_file` returned; other processes keep what they have opened."""
    if path.parent.name == "fd":
        os.close(int(path.name))
    else:
        shutil.rmtree(path.parent, ignore_errors=True)


def limit_memory(extra: int) -> None:
    """Allows this process `extra` bytes of data beyond what it has now."""
    if not sys.platform.startswith("linux"):
        return
    status = Path("/proc/self/status").read_text()
    now = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (now + extra, resource.RLIM_INFINITY))


def limit_files(size: int) -> None:
    """Lets this process and those it starts write no file of more than `size` bytes; one that does is killed."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))


def resident_bytes(pid: int) -> int:
    """Bytes of memory a process holds now; the peak that the system keeps includes its parent's."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def describe_exit(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"the process exited with status {code}"
    return f"killed by {signal.Signals(-code).name}"
