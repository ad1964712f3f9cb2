"""Link: a connection to a PostgreSQL server that waits until a moment, and no longer."""

from __future__ import annotations

import select
from collections.abc import Sequence
from functools import cached_property
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

T = TypeVar("T")


class Late(psycopg.OperationalError):
    """No answer in time."""


class Link(psycopg.Connection[Any]):
    """A connection that waits until a moment, and no longer.

    The deadline is kept here, by us: a server that is stopped or cut off keeps none.
    """

    until = 0.0
    idle_since = 0.0

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Let `gen` go on whenever the server is ready; what it returns."""
        try:
            return super().wait(gen, interval, max(0.0, self.until - monotonic()))
        except psycopg.OperationalError:
            if monotonic() >= self.until:
                raise Late("no answer in time") from None
            raise

    def rows(self, sql: str, given: Sequence[Any]) -> list[Any]:
        """What one statement answers."""
        cursor = self.asking
        cursor.execute(sql, given, prepare=True)
        try:
            return cursor.fetchall()
        except psycopg.ProgrammingError:  # there is none; to ask beforehand would make every look-up slower
            return []

    @cached_property
    def asking(self) -> psycopg.Cursor[Any]:
        """A cursor that is kept, since making one costs a quarter of a look-up; answers are binary."""
        return self.cursor(binary=True)

    @property
    def usable(self) -> bool:
        """Whether it can take another statement."""
        return not self.closed and self.pgconn.transaction_status == TransactionStatus.IDLE

    @property
    def quiet(self) -> bool:
        """Whether nothing came since the last answer; what comes unasked is a farewell."""
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return not poll.poll(0)
