"""A process that is forked for each worker: it has imported what they need, so that a new one starts at once.

The process that needs workers cannot be forked itself, since it has threads or the context of a device. This one has
neither: it only imports, forks and waits.
"""

from __future__ import annotations

import atexit
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable
from typing import IO

from tunewright.errors import BackendError
from tunewright.pools.worker_process import (
    Channel,
    Started,
    WorkerProcess,
    configure_child_process,
    open_child_channel,
    run_forked,
)
from tunewright.stores import process_id

_NUMBER = struct.Struct("<i")
_START = 0

_servers: dict[str, ForkServer] = {}
_lock = threading.Lock()


class ForkServer:
    """The process itself, as the one that needs workers sees it."""

    def __init__(self, module: str) -> None:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._process = WorkerProcess.spawn(module, threads=1, search_path=path)
        self._lock, self._owner = threading.Lock(), process_id.current
        atexit.register(self.close)

    def start_worker(self) -> WorkerProcess:
        """Starts a worker. Raises BackendError if the process is dead."""

        def start(parent_sock: socket.socket, child_sock: socket.socket, output: IO[bytes]) -> Started:
            pid = self.ask(_START, [child_sock.fileno(), output.fileno()])
            return pid, _ForkedWorker(self, pid)

        return WorkerProcess(start)

    def ask(self, number: int, files: list[int]) -> int:
        """Asks for a new worker, which gets these files, or waits for the worker with this id; returns the answer."""
        sock = self._process.channel.sock
        with self._lock:
            try:
                socket.send_fds(sock, [_NUMBER.pack(number)], files)
                answer = sock.recv(_NUMBER.size)
            except OSError:
                answer = b""
        if not answer:
            tail = self._process.output_tail()
            self.close()
            raise BackendError(f"the process that starts workers died{tail}; start the program anew")
        return int(_NUMBER.unpack(answer)[0])

    @property
    def is_usable(self) -> bool:
        """Whether it was not ended, and is not that of a process that this one was forked from."""
        return not self._process.closed and self._owner == process_id.current

    def close(self) -> None:
        """Ends the process, and with it its workers."""
        atexit.unregister(self.close)
        if self.is_usable:
            self._process.close()


class _ForkedWorker:
    """A worker, which only the process that forked it can wait for."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server, self._pid = server, pid

    def wait(self) -> int:
        """Waits for its end, and returns its exit code."""
        return self._server.ask(self._pid, [])


def fork_server(module: str) -> ForkServer:
    """Returns the process that has imported a module, whose `main` calls `serve_forks`; starts it if need be."""
    with _lock:
        if module not in _servers or not _servers[module].is_usable:
            _servers[module] = ForkServer(module)
        return _servers[module]


def start_worker(module: str) -> WorkerProcess:
    """Starts a worker of the process that has imported a module; of a new one, if that has died meanwhile."""
    try:
        return fork_server(module).start_worker()
    except BackendError:
        return fork_server(module).start_worker()


def serve_forks(work: Callable[[Channel], None]) -> None:
    """Forks a process that does the work for each request, until the parent hangs up."""
    # Its parent may end the thread that started it, and go on; with the parent itself the socket ends.
    configure_child_process(dies_with_thread=False)
    channel = open_child_channel()
    while True:
        data, files, _, _ = socket.recv_fds(channel.sock, _NUMBER.size, 2)
        if not data:
            return
        (number,) = _NUMBER.unpack(data)
        answer = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) if number else _fork(channel, files, work)
        channel.sock.sendall(_NUMBER.pack(answer))


def _fork(channel: Channel, files: list[int], work: Callable[[Channel], None]) -> int:
    """Returns the id of a new process, which does the work."""
    pid = os.fork()
    if not pid:
        channel.sock.close()
        run_forked(work, socket.socket(fileno=files[0]), files[1])
    for number in files:
        os.close(number)
    return pid
