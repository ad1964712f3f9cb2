"""A connection to a PostgreSQL server with a deadline."""

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


class AnswerTimeout(psycopg.OperationalError):
    """Raised when the server does not answer in time."""


class DeadlineConnection(psycopg.Connection[Any]):
    """A connection that waits until its deadline, and no longer.

    The client enforces the deadline: a server that is stopped or cut off cannot.
    """

    deadline = 0.0
    idle_since = 0.0

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Advances `gen` whenever the server is ready, and returns its result."""
        try:
            return super().wait(gen, interval, max(0.0, self.deadline - monotonic()))
        except psycopg.OperationalError:
            if monotonic() >= self.deadline:
                raise AnswerTimeout("no answer in time") from None
            raise

    def rows(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        """Runs one statement and returns its rows."""
        cursor = self.binary_cursor
        cursor.execute(sql, parameters, prepare=True)
        try:
            return cursor.fetchall()
        except psycopg.ProgrammingError:  # it returns no rows; checking first would make every look-up slower
            return []

    @cached_property
    def binary_cursor(self) -> psycopg.Cursor[Any]:
        """A cursor that is kept, since making one costs a quarter of a look-up."""
        return self.cursor(binary=True)

    @property
    def is_usable(self) -> bool:
        """Whether it can take another statement."""
        return not self.closed and self.pgconn.transaction_status == TransactionStatus.IDLE

    @property
    def is_quiet(self) -> bool:
        """Whether nothing arrived since the last answer; unexpected data means that the server closes it."""
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return not poll.poll(0)
