"""Connection pool: the few connections of a process to a PostgreSQL server, closed when they idle."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic, sleep

from tunewright.stores import process_id
from tunewright.stores.postgres.connection import AnswerTimeout, DeadlineConnection

MAX_CONNECTIONS = 4
"""Connections of a process: thousands of processes may share a server."""

POLL_SECONDS = 0.005
"""Seconds between two checks for an idle connection, when no more may be opened."""

IDLE_SECONDS = 0.5
"""How long a connection may idle.

A server has some hundred slots, and a process that holds one for life keeps it from others: with one look-up at its
start and a trial now and then, it needs the slot for a thousandth of its life. Reconnecting takes some milliseconds,
which a process that calls twice a second can afford; one that calls all the time stays connected.
"""

CROWDED_SECONDS = 10.0
"""How long after a server was full connections are closed right after use: others still wait for a slot."""

_inherited: list[DeadlineConnection] = []
"""Connections of a parent process. Closing one here would end it there."""


class ConnectionPool:
    """The connections of a process. Threads may share it; a forked child needs its own."""

    def __init__(self) -> None:
        self.owner = process_id.current
        self.prepared = False
        self._idle: list[DeadlineConnection] = []
        self._slots: SimpleQueue[None] = SimpleQueue()
        self._crowded_until = 0.0
        self._lock = Lock()
        self._closing_idle = False
        for _ in range(MAX_CONNECTIONS):
            self._slots.put(None)

    def acquire(self, deadline: float) -> DeadlineConnection | None:
        """Returns the idle connection that was used last; None if the caller may open a new one."""
        while True:
            try:
                return self._idle.pop()
            except IndexError:
                pass
            try:
                return self._slots.get(timeout=POLL_SECONDS)
            except Empty:
                if monotonic() > deadline:
                    raise AnswerTimeout(f"all {MAX_CONNECTIONS} connections of this process are busy") from None

    def release(self, connection: DeadlineConnection) -> None:
        """Takes a connection back, or frees its slot if it is unusable."""
        now = monotonic()
        if not connection.is_usable or now < self._crowded_until:
            connection.close()
            self.free_slot()
            return
        connection.idle_since = now
        with self._lock:
            self._idle.append(connection)
            if not self._closing_idle:
                self._closing_idle = True
                Thread(target=self._close_idle, daemon=True, name="tunewright disconnects").start()

    def free_slot(self) -> None:
        """Frees the slot of a connection that was closed or never opened."""
        self._slots.put(None)

    def mark_crowded(self) -> None:
        """Records that the server is full."""
        self._crowded_until = monotonic() + CROWDED_SECONDS

    def close(self) -> None:
        """Closes the idle connections; in a forked child, keeps them from being closed."""
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if self.owner == process_id.current:
                    connection.close()
                    self.free_slot()
                else:
                    _inherited.append(connection)

    def _close_idle(self) -> None:
        """Closes connections that idle for too long, while there are idle ones. The longest idle comes first."""
        while True:
            sleep(IDLE_SECONDS / 2)
            with suppress(IndexError):  # other threads take connections without waiting for this one
                while self._idle[0].idle_since < monotonic() - IDLE_SECONDS:
                    self._idle.pop(0).close()
                    self.free_slot()
            with self._lock:
                if not self._idle:
                    self._closing_idle = False
                    return
