"""Server: connections to a PostgreSQL server, of which every use ends in time, and whose errors say what to do."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from random import uniform
from time import monotonic, sleep
from typing import Any, TypeVar

import psycopg
from psycopg import errors

from tunewright.errors import StoreError
from tunewright.stores import process
from tunewright.stores.postgres import schema
from tunewright.stores.postgres.link import Late, Link
from tunewright.stores.postgres.pool import Pool
from tunewright.stores.postgres.target import Target

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds, more or less, between two knocks at a server that has no room: each costs it a process."""

PAGE = 1000

_ADVICE: dict[type[psycopg.Error], str] = {
    errors.InsufficientPrivilege: "grant the user rights on the schema `tunewright`, or on the database to make it",
    errors.DiskFull: "free some space on the server, then drop what is old with `tunewright store gc`",
    errors.UndefinedTable: "someone dropped it: the next call makes it anew, and empty",
    errors.ReadOnlySqlTransaction: "this server only answers; name the one that is written to",
    errors.OperationalError: "check that the server is up, and its address, user and password",
}
_NO_ROOM = ("too many clients", "too many connections", "remaining connection slots")
"""How a server says that it has no room for another connection; it has no number for that at this stage."""

_ELSE = "check that it is a PostgreSQL of version 12 or later"


class Server:
    """A few connections, opened when they are needed and used again; a forked child opens its own.

    A call ends within `seconds`, whatever the server does; one that says how long it has to wait for `room` may wait so
    much longer for a place on a server that says it has none, and so is alive. One that finds its connection broken, as
    after a restart, is made again on a fresh one where that cannot do anything twice. Raises only StoreError.
    """

    def __init__(self, target: Target, seconds: float | None = None) -> None:
        self.name = target.name
        self._seconds = target.seconds if seconds is None else seconds
        self._connect_seconds = target.seconds
        self._secret = target.options.get("password")
        self._options = _options(target, self._seconds)
        self._renew()

    def rows(self, sql: str, given: Sequence[Any] = (), *, twice: bool = True, room: float = 0.0) -> list[Any]:
        """What one statement answers, in one round trip; `twice` if it may be made again."""
        return self.use(lambda link: link.rows(sql, given), twice=twice, room=room)

    def pages(self, sql: str, after: Any, *given: Any) -> Iterator[Any]:
        """All rows, read a page at a time: `sql` takes what is given, where to go on, and how many."""
        while True:
            rows = self.rows(sql, (*given, after, PAGE))
            yield from rows
            if len(rows) < PAGE:
                return
            after = rows[-1][0]

    def use(self, work: Callable[[Link], T], *, twice: bool, room: float = 0.0) -> T:
        """What `work` makes of a connection; `twice` if it may be made again."""
        pool = self._pool if self._pool.owner == process.number else self._renew()
        until = monotonic() + self._seconds
        try:
            while True:
                idled = pool.taken(until)
                link = idled or self._opened(pool, until, room)
                if idled:
                    link.until = until
                else:
                    until = link.until  # later, if it had to wait for room
                if idled and not twice and not link.quiet:
                    link.close()
                    pool.give(link)
                    continue
                try:
                    return work(link)
                except psycopg.OperationalError:
                    if not idled or not twice or link.usable or monotonic() >= until:
                        raise
                    pool.close()  # the others idled through the same
                finally:
                    pool.give(link)
        except psycopg.Error as error:
            raise self._failed(error) from error

    def _opened(self, pool: Pool, until: float, room: float) -> Link:
        """A new connection, to tables of our version."""
        link = None
        try:
            link = self._connected(pool, until, room)
            if not pool.prepared:
                until = link.until
                schema.prepare(link, self.name)
                link.until, pool.prepared = until, True
            return link
        except BaseException:
            if link is not None:
                link.close()
            pool.vacate()
            raise

    def _connected(self, pool: Pool, until: float, room: float) -> Link:
        """A new connection, waited for while the server has no room for one.

        Whoever knocks in vain comes back later each time, and never at once with the others.
        """
        last, pause, refusal = until + room, FIRST_PAUSE, None
        while True:
            try:
                return self._connected_at_once(until)
            except psycopg.OperationalError as error:
                if refusal is not None and isinstance(error, Late):
                    raise refusal from None  # the last knock came too late for an answer; we know why there is none
                no_room = any(words in str(error) for words in _NO_ROOM)
                wait = pause * uniform(0.5, 1.5)
                if not no_room or monotonic() + wait >= last:
                    raise
                refusal = error
                pool.crowd()
                sleep(wait)
                pause = min(2 * pause, LONGEST_PAUSE)
                if room:
                    until = monotonic() + self._seconds  # it lives, and has its time again

    def _connected_at_once(self, until: float) -> Link:
        """A new connection. A thread opens it, since looking up a name cannot be told when to end."""
        opening: Future[Link] = Future()

        def open_it() -> None:
            try:
                opening.set_result(Link.connect(autocommit=True, **self._options))
            except (psycopg.Error, OSError) as error:
                opening.set_exception(error)

        threading.Thread(target=open_it, daemon=True, name="tunewright connects").start()
        try:
            link = opening.result(min(until - monotonic(), self._connect_seconds))
        except TimeoutError:
            opening.add_done_callback(_close_late)
            raise Late("no connection in time") from None
        except OSError as error:
            raise psycopg.OperationalError(str(error)) from error
        link.until = until
        return link

    def _renew(self) -> Pool:
        if (known := getattr(self, "_pool", None)) is not None:
            known.close()
        self._pool = Pool()
        weakref.finalize(self, self._pool.close)
        return self._pool

    def _failed(self, error: psycopg.Error) -> StoreError:
        said = " ".join(str(error).split())
        if self._secret:
            said = said.replace(str(self._secret), "***")
        if any(words in said for words in _NO_ROOM):
            advice = "let the server take more connections (`max_connections`), or put a pooler before it"
        elif isinstance(error, Late | errors.ConnectionTimeout):  # ours, or the driver's, whichever comes first
            advice = (
                f"nothing came within {self._seconds:g} s; is it reachable? `tunewright_timeout` says how long to wait"
            )
        else:
            advice = next((advice for kind, advice in _ADVICE.items() if isinstance(error, kind)), _ELSE)
        if isinstance(error, errors.UndefinedTable):  # someone dropped it; the next call makes it anew
            self._pool.prepared = False
            self._pool.close()
        return StoreError(f"cannot use the store on {self.name}: {said}; {advice}")


def _close_late(opening: Future[Link]) -> None:
    if opening.exception() is None:
        opening.result().close()


def _options(target: Target, seconds: float) -> dict[str, Any]:
    """What libpq is told: to give up on a dead line, and to acknowledge what is on the disk only."""
    words = {
        "search_path": "tunewright",
        "lock_timeout": int(1000 * seconds),
        "synchronous_commit": "on",
        "client_min_messages": "error",
    }
    settings = [f"-c {name}={value}" for name, value in words.items()]
    return {
        "connect_timeout": max(2, int(target.seconds)),
        "tcp_user_timeout": int(1000 * seconds),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "application_name": "tunewright",
        **target.options,
        "options": " ".join([target.options.get("options", ""), *settings]).strip(),
    }
