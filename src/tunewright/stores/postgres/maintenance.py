"""Maintenance of a PostgreSQL store: sizes, trimming and verification."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from tunewright.stores import retention, verify
from tunewright.stores.postgres.server import PostgresServer
from tunewright.stores.retention import ALL_TABLES, RecordTable, TableRow
from tunewright.stores.statistics import RetentionLimits, StoreStats

SECONDS = 600.0
"""How long one maintenance statement may take: it may have to read everything."""

_FIRST_ID = {"id": 0, "digest": b""}


class PostgresTables:
    """The tables of a server, for `retention.trim`."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def now(self) -> float:
        """Returns the earlier of the server's clock and ours: one that jumps ahead makes nothing old."""
        return min(time.time(), float(self._server.rows("SELECT extract(epoch FROM now())::float8")[0][0]))

    def stats(self) -> StoreStats:
        """Returns how much is stored."""
        counts, total = {}, 0
        for table in ALL_TABLES:
            select = f"SELECT count(*), coalesce(sum({table.size}), 0)::bigint FROM {table.table}"
            ((counts[table.kind], size),) = self._server.rows(select)
            total += size
        return StoreStats(**counts, bytes=total)

    def drop_older(self, table: RecordTable, before: float, limit: int) -> Sequence[int]:
        """Removes up to `limit` records older than `before`."""
        old = f"ARRAY(SELECT {table.id} FROM {table.table} WHERE {table.at} < %b AND {table.condition} LIMIT %b)"
        return self._delete(table, f"{table.id} = ANY({old})", (before, limit))

    def oldest(self, table: RecordTable, limit: int) -> Sequence[TableRow]:
        """Returns the oldest records."""
        columns = f"{table.at}, {table.id}, {table.size}"
        select = f"SELECT {columns} FROM {table.table} WHERE {table.condition} ORDER BY {table.order} LIMIT %b"
        return [TableRow(*row) for row in self._server.rows(select, (limit,))]

    def drop(self, table: RecordTable, rows: Sequence[TableRow]) -> Sequence[int]:
        """Removes these records unless they were replaced meanwhile."""
        parameters = (max(row.at for row in rows), [row.id for row in rows])
        return self._delete(table, f"{table.at} <= %b AND {table.id} = ANY(%b) AND {table.condition}", parameters)

    def _delete(self, table: RecordTable, condition: str, parameters: Sequence[object]) -> list[int]:
        # If it is repeated after a broken connection, it removes more records that are beyond the limits.
        rows = self._server.rows(f"DELETE FROM {table.table} WHERE {condition} RETURNING {table.size}", parameters)
        return [size for (size,) in rows]


def trim(server: PostgresServer, limits: RetentionLimits) -> StoreStats:
    """Removes records beyond `limits` and leftovers. Returns what was removed.

    The key of a journal stays when its trials go: it is small, and a process may be about to append.
    """
    server.rows("DELETE FROM entries WHERE until <= extract(epoch FROM now())")
    server.rows("DELETE FROM leases WHERE until <= now()")
    server.rows("DELETE FROM wants w USING decisions d WHERE d.digest = w.digest")
    return retention.trim(PostgresTables(server), limits)


def find_faults(server: PostgresServer) -> Iterator[str]:
    """Yields one sentence for each damaged record."""

    def pages(columns: str, table: str) -> Iterator[Any]:
        by = columns.partition(",")[0]
        return server.pages(f"SELECT {columns} FROM {table} WHERE {by} > %b ORDER BY {by} LIMIT %b", _FIRST_ID[by])

    return verify.find_faults(pages)
