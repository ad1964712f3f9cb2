"""A PostgreSQL server: every call ends in time, and errors say what to do."""

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

from tunewright.errors import StoreError, WriteRefused
from tunewright.stores import process_id
from tunewright.stores.postgres import schema
from tunewright.stores.postgres.connection import AnswerTimeout, DeadlineConnection
from tunewright.stores.postgres.location import PostgresLocation
from tunewright.stores.postgres.pool import ConnectionPool

T = TypeVar("T")

MIN_PAUSE, MAX_PAUSE = 0.05, 1.0
"""Seconds, roughly, between two attempts to connect to a full server: each costs it a process."""

PAGE = 1000

_ADVICE: dict[type[psycopg.Error], str] = {
    errors.InsufficientPrivilege: "grant the user rights on the schema `tunewright`, or on the database to create it",
    errors.DiskFull: "free some space on the server, then remove old records with `tunewright store gc`",
    errors.UndefinedTable: "the table was dropped: the next call creates a new, empty one",
    errors.ReadOnlySqlTransaction: "this server is read-only; use the primary",
    errors.OperationalError: "check that the server is up, and its address, user and password",
}
_SERVER_FULL = ("too many clients", "too many connections", "remaining connection slots")
"""Messages of a server that is full; there is no error code for that at this stage."""

_REFUSALS = (errors.InsufficientPrivilege, psycopg.DataError, psycopg.IntegrityError)
"""Errors of a server that works and does not accept a statement."""

_DEFAULT_ADVICE = "check that it is PostgreSQL 12 or later"


class PostgresServer:
    """A few connections, opened when needed and reused; a forked child opens its own.

    A call ends within `seconds`, whatever the server does; one with `max_wait` waits that much longer for a connection
    to a server that says it is full, and so is alive. A call that finds its connection broken, as after a restart, is
    repeated on a new one if it is idempotent. Raises only StoreError.
    """

    def __init__(self, location: PostgresLocation, seconds: float | None = None) -> None:
        self.name = location.name
        self._seconds = location.seconds if seconds is None else seconds
        self._connect_seconds = location.seconds
        self._secret = location.options.get("password")
        self._options = _connect_options(location, self._seconds)
        self._renew_pool()

    def rows(
        self, sql: str, parameters: Sequence[Any] = (), *, idempotent: bool = True, max_wait: float = 0.0
    ) -> list[Any]:
        """Runs one statement in one round trip and returns its rows."""
        return self.use(lambda connection: connection.rows(sql, parameters), idempotent=idempotent, max_wait=max_wait)

    def pages(self, sql: str, after: Any, *parameters: Any) -> Iterator[Any]:
        """Yields all rows, read page by page: `sql` takes the parameters, then the last id and the page size."""
        while True:
            rows = self.rows(sql, (*parameters, after, PAGE))
            yield from rows
            if len(rows) < PAGE:
                return
            after = rows[-1][0]

    def use(self, work: Callable[[DeadlineConnection], T], *, idempotent: bool, max_wait: float = 0.0) -> T:
        """Returns `work(connection)`; if `idempotent`, it is repeated when a reused connection turns out broken."""
        pool = self._pool if self._pool.owner == process_id.current else self._renew_pool()
        deadline = monotonic() + self._seconds
        try:
            while True:
                reused = pool.acquire(deadline)
                connection = reused or self._open(pool, deadline, max_wait)
                if reused:
                    connection.deadline = deadline
                else:
                    deadline = connection.deadline  # later, if it had to wait for a slot
                if reused and not idempotent and not connection.is_quiet:
                    connection.close()
                    pool.release(connection)
                    continue
                try:
                    return work(connection)
                except psycopg.OperationalError:
                    if not reused or not idempotent or connection.is_usable or monotonic() >= deadline:
                        raise
                    pool.close()  # the other idle connections are broken, too
                finally:
                    pool.release(connection)
        except psycopg.Error as error:
            raise self._failed(error) from (None if self._secret and str(self._secret) in str(error) else error)

    def _open(self, pool: ConnectionPool, deadline: float, max_wait: float) -> DeadlineConnection:
        """Opens a connection and migrates the tables if needed."""
        connection = None
        try:
            connection = self._connect(pool, deadline, max_wait)
            if not pool.prepared:
                deadline = connection.deadline
                schema.prepare(connection, self.name)
                connection.deadline, pool.prepared = deadline, True
            return connection
        except BaseException:
            if connection is not None:
                connection.close()
            pool.free_slot()
            raise

    def _connect(self, pool: ConnectionPool, deadline: float, max_wait: float) -> DeadlineConnection:
        """Opens a connection; while the server is full, tries again, with growing and random pauses."""
        last, pause, refusal = deadline + max_wait, MIN_PAUSE, None
        while True:
            try:
                return self._connect_once(deadline)
            except psycopg.OperationalError as error:
                if refusal is not None and isinstance(error, AnswerTimeout):
                    raise refusal from None  # the last attempt was too late for an answer; the reason is known
                is_full = any(words in str(error) for words in _SERVER_FULL)
                wait = pause * uniform(0.5, 1.5)
                if not is_full or monotonic() + wait >= last:
                    raise
                refusal = error
                pool.mark_crowded()
                sleep(wait)
                pause = min(2 * pause, MAX_PAUSE)
                if max_wait:
                    deadline = monotonic() + self._seconds  # the server is alive, and gets its time again

    def _connect_once(self, deadline: float) -> DeadlineConnection:
        """Opens a connection in a thread, since a name look-up has no time-out."""
        opening: Future[DeadlineConnection] = Future()

        def connect() -> None:
            try:
                opening.set_result(DeadlineConnection.connect(autocommit=True, **self._options))
            except (psycopg.Error, OSError) as error:
                opening.set_exception(error)

        threading.Thread(target=connect, daemon=True, name="tunewright connects").start()
        try:
            connection = opening.result(min(deadline - monotonic(), self._connect_seconds))
        except TimeoutError:
            opening.add_done_callback(_close_late)
            raise AnswerTimeout("no connection in time") from None
        except OSError as error:
            raise psycopg.OperationalError(str(error)) from error
        connection.deadline = deadline
        return connection

    def _renew_pool(self) -> ConnectionPool:
        if (previous := getattr(self, "_pool", None)) is not None:
            previous.close()
        self._pool = ConnectionPool()
        weakref.finalize(self, self._pool.close)
        return self._pool

    def _failed(self, error: psycopg.Error) -> StoreError:
        message = " ".join(str(error).split())
        if self._secret:
            message = message.replace(str(self._secret), "***")
        if any(words in message for words in _SERVER_FULL):
            advice = "allow more connections (`max_connections`), or put a connection pooler in front of the server"
        elif isinstance(error, AnswerTimeout | errors.ConnectionTimeout):  # ours or the driver's, whichever is first
            advice = (
                f"no answer within {self._seconds:g} s; is it reachable? `tunewright_timeout` sets how long to wait"
            )
        else:
            advice = next((advice for kind, advice in _ADVICE.items() if isinstance(error, kind)), _DEFAULT_ADVICE)
        if isinstance(error, errors.UndefinedTable):  # the next call creates the tables again
            self._pool.prepared = False
            self._pool.close()
        kind = WriteRefused if isinstance(error, _REFUSALS) else StoreError
        return kind(f"cannot use the store on {self.name}: {message}; {advice}")


def _close_late(opening: Future[DeadlineConnection]) -> None:
    if opening.exception() is None:
        opening.result().close()


def _connect_options(location: PostgresLocation, seconds: float) -> dict[str, Any]:
    """Returns options for libpq: give up on a dead connection, acknowledge only what is on the disk."""
    variables = {
        "search_path": "tunewright",
        "lock_timeout": int(1000 * seconds),
        "synchronous_commit": "on",
        "client_min_messages": "error",
    }
    settings = [f"-c {name}={value}" for name, value in variables.items()]
    return {
        "connect_timeout": max(2, int(location.seconds)),
        "tcp_user_timeout": int(1000 * seconds),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "application_name": "tunewright",
        **location.options,
        "options": " ".join([location.options.get("options", ""), *settings]).strip(),
    }
