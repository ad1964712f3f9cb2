"""Pool: the connections that a process has open to a PostgreSQL server, and how much more it may open."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic, sleep

from tunewright.stores import process
from tunewright.stores.postgres.link import Late, Link

MOST = 4
"""Connections of a process: thousands of processes may share a server."""

GLANCE = 0.005
"""Seconds after which to look again for a connection that idles, where there can be no more."""

IDLE_SECONDS = 0.5
"""How long a connection may idle.

A server has some hundred places, and whoever holds one for life keeps it from others: with one question at its start
and a trial now and then, a program needs its place for a thousandth of its life. To connect again takes some
milliseconds, which a program that asks once in half a second has; one that asks all the time stays connected.
"""

CROWDED_SECONDS = 10.0
"""How long after a server had no room its places are given back at once: others still wait for theirs."""

_inherited: list[Link] = []
"""Connections of a parent process. To close one here would end it there."""


class Pool:
    """What a process has open. Threads may share it; a forked child needs its own."""

    def __init__(self) -> None:
        self.owner = process.number
        self.prepared = False
        self._idle: list[Link] = []
        self._places: SimpleQueue[None] = SimpleQueue()
        self._crowded_until = 0.0
        self._lock = Lock()
        self._tidying = False
        for _ in range(MOST):
            self._places.put(None)

    def taken(self, until: float) -> Link | None:
        """A connection that idles, the one last used; None if one may be opened."""
        while True:
            try:
                return self._idle.pop()
            except IndexError:
                pass
            try:
                return self._places.get(timeout=GLANCE)
            except Empty:
                if monotonic() > until:
                    raise Late(f"all {MOST} connections of this process are busy") from None

    def give(self, link: Link) -> None:
        """Take a connection back, or its place if it is of no use any more."""
        now = monotonic()
        if not link.usable or now < self._crowded_until:
            link.close()
            self.vacate()
            return
        link.idle_since = now
        with self._lock:
            self._idle.append(link)
            if not self._tidying:
                self._tidying = True
                Thread(target=self._tidy, daemon=True, name="tunewright disconnects").start()

    def vacate(self) -> None:
        """Take back the place of a connection that is no more, or never came to be."""
        self._places.put(None)

    def crowd(self) -> None:
        """Note that the server has no room."""
        self._crowded_until = monotonic() + CROWDED_SECONDS

    def close(self) -> None:
        """Close what is idle; in a forked child, keep it from being closed."""
        with suppress(IndexError):
            while True:
                link = self._idle.pop()
                if self.owner == process.number:
                    link.close()
                    self.vacate()
                else:
                    _inherited.append(link)

    def _tidy(self) -> None:
        """Close what idles for too long, while anything idles. The one that idles longest stands first."""
        while True:
            sleep(IDLE_SECONDS / 2)
            with suppress(IndexError):  # whoever needs one takes it without waiting for us
                while self._idle[0].idle_since < monotonic() - IDLE_SECONDS:
                    self._idle.pop(0).close()
                    self.vacate()
            with self._lock:
                if not self._idle:
                    self._tidying = False
                    return
