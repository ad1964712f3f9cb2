"""Maintenance of a SQLite store: sizes, trimming and verification."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from tunewright.errors import StoreError
from tunewright.lazy_logging import LazyLogger
from tunewright.stores import retention, verify
from tunewright.stores.retention import ALL_TABLES, RecordTable, TableRow
from tunewright.stores.sqlite.connection import SqliteFile
from tunewright.stores.statistics import RetentionLimits, StoreStats

log = LazyLogger(__name__)

SMALL = 64 << 20
"""Largest file in bytes that is rewritten to free space, where nothing else helps: others wait meanwhile."""

_FIRST_ID = {"id": 0, "digest": b""}
_JOURNALS = "(SELECT t.id, digest, body, seal FROM trials t LEFT JOIN problems p ON p.id = problem)"


class SqliteTables:
    """The tables of a file, for `retention.trim`."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def now(self) -> float:
        """Returns the earlier of the wall clock and what it would show had it not been set since boot.

        A clock that jumps ahead thus makes nothing old.
        """
        return min(time.time(), self._file.now())

    def stats(self) -> StoreStats:
        """Returns how much is stored."""
        selects = [f"SELECT count(*), total({table.size}) FROM {table.table}" for table in ALL_TABLES]
        rows = self._file.rows(" UNION ALL ".join(selects))
        counts = {table.kind: row[0] for table, row in zip(ALL_TABLES, rows, strict=True)}
        return StoreStats(**counts, bytes=int(sum(size for _, size in rows)))

    def drop_older(self, table: RecordTable, before: float, limit: int) -> Sequence[int]:
        """Removes up to `limit` records older than `before`."""
        old = f"SELECT {table.id} FROM {table.table} WHERE {table.at} < ? AND {table.condition} LIMIT ?"
        return self._delete(table, f"{table.id} IN ({old})", (before, limit))

    def oldest(self, table: RecordTable, limit: int) -> Sequence[TableRow]:
        """Returns the oldest records."""
        # Damage can turn a number into NULL or text.
        columns = f"coalesce(CAST({table.at} AS REAL), 0.0), {table.id}, coalesce({table.size}, 0)"
        select = f"SELECT {columns} FROM {table.table} WHERE {table.condition} ORDER BY {table.order} LIMIT ?"
        return [TableRow(*row) for row in self._file.rows(select, (limit,))]

    def drop(self, table: RecordTable, rows: Sequence[TableRow]) -> Sequence[int]:
        """Removes these records unless they were replaced meanwhile."""
        marks = ",".join("?" * len(rows))
        parameters = (max(row.at for row in rows), *(row.id for row in rows))
        condition = f"coalesce(CAST({table.at} AS REAL), 0.0) <= ? AND {table.id} IN ({marks}) AND {table.condition}"
        return self._delete(table, condition, parameters)

    def _delete(self, table: RecordTable, condition: str, parameters: Sequence[object]) -> list[int]:
        with self._file.writing() as connection:
            rows = connection.execute(
                f"DELETE FROM {table.table} WHERE {condition} RETURNING coalesce({table.size}, 0)", parameters
            )
            return [size for (size,) in rows.fetchall()]


def trim(file: SqliteFile, limits: RetentionLimits) -> StoreStats:
    """Removes records beyond `limits` and leftovers, and shrinks the file. Returns what was removed."""
    file.change("DELETE FROM entries WHERE until <= ?", (file.now(),))
    removed = retention.trim(SqliteTables(file), limits)
    file.change("DELETE FROM problems WHERE id NOT IN (SELECT problem FROM trials)")
    file.change("DELETE FROM wants WHERE digest IN (SELECT digest FROM decisions)")
    file.change("DELETE FROM leases WHERE boot NOT IN (SELECT boot FROM boots)")
    try:
        _shrink(file)
    except StoreError as error:
        log.info("cannot shrink the file: %s", error)
    return removed


def _shrink(file: SqliteFile) -> None:
    """Returns the free space of the file: page by page, or by rewriting a small one."""
    if file.row("PRAGMA auto_vacuum")[0] == 2:
        while (free := file.row("PRAGMA freelist_count")[0]) > 0:
            file.rows(f"PRAGMA incremental_vacuum({retention.BATCH})")
            if file.row("PRAGMA freelist_count")[0] >= free:
                break
    elif file.path.stat().st_size <= SMALL:
        # From now on it can be shrunk page by page.
        file.rows("PRAGMA auto_vacuum = INCREMENTAL")
        file.rows("VACUUM")
    file.rows("PRAGMA wal_checkpoint(PASSIVE)")


def find_faults(file: SqliteFile) -> Iterator[str]:
    """Yields one sentence for each damaged record, and what SQLite itself finds wrong with the file."""
    try:
        yield from (f"SQLite reports: {line}" for (line,) in file.rows("PRAGMA integrity_check") if line != "ok")
    except StoreError as error:
        yield str(error)

    def pages(columns: str, table: str) -> Iterator[Any]:
        by = columns.partition(",")[0]
        select = f"SELECT {columns} FROM {table} WHERE {by} > :after ORDER BY {by} LIMIT :count"
        return file.pages(select, _FIRST_ID[by])

    yield from verify.find_faults(pages, journals=_JOURNALS)
