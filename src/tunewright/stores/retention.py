"""Retention: which records of a database are removed when there are too many, or when they are too old.

A record is removed only if its kind says so: a table that is listed here, or a namespace that is declared as removable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import merge
from typing import Any, NamedTuple, Protocol

from tunewright.stores.namespaces import removable
from tunewright.stores.statistics import RetentionLimits, StoreStats

BATCH = 500
"""Records removed in one transaction: few enough that others hardly wait."""

WINDOW = 20_000
"""Records per table that are examined to find the oldest of all tables."""


class RecordTable(NamedTuple):
    """A table of records in terms of SQL: its name, and expressions for the id, time and size of a record.

    `order` sorts the records by age, by an index where there is one. `condition` limits it to some records.
    """

    kind: str
    table: str
    id: str
    at: str
    size: str
    order: str
    condition: str = "1 = 1"


EXPENDABLE_TABLES = (
    RecordTable("trials", "trials", "id", "at", "length(body)", "id"),
    RecordTable("generations", "history", "id", "since", "length(body)", "id"),
    RecordTable("wants", "wants", "digest", "at", "length(key)", "at"),
)
ENTRIES_TABLE = RecordTable("entries", "entries", "id", "at", "length(body)", "id")
"""Entries of namespaces: which of them may be removed, their kinds say."""
DECISIONS_TABLE = RecordTable("decisions", "decisions", "digest", "since", "length(body)", "since")
"""Current decisions, which are what a store is for: they go last, if at all."""
ALL_TABLES = (*EXPENDABLE_TABLES, ENTRIES_TABLE, DECISIONS_TABLE)


class TableRow(NamedTuple):
    """The time, id and size of a record that may be removed."""

    at: float
    id: Any
    size: int


class RetentionTables(Protocol):
    """What `trim` needs of a database. Each call is a transaction of its own."""

    def now(self) -> float:
        """Returns the time from which ages are counted."""
        ...

    def stats(self) -> StoreStats:
        """Returns how much is stored."""
        ...

    def drop_older(self, table: RecordTable, before: float, limit: int) -> Sequence[int]:
        """Removes up to `limit` records older than `before` and returns the size of each."""
        ...

    def oldest(self, table: RecordTable, limit: int) -> Sequence[TableRow]:
        """Returns the oldest records."""
        ...

    def drop(self, table: RecordTable, rows: Sequence[TableRow]) -> Sequence[int]:
        """Removes these records unless they were replaced meanwhile, and returns the size of each."""
        ...


def trim(tables: RetentionTables, limits: RetentionLimits) -> StoreStats:
    """Removes the records beyond `limits`, oldest first, and returns what was removed."""
    removed: Counter[str] = Counter()
    expendable = _expendable(limits)
    if limits.age is not None:
        before = tables.now() - limits.age
        for table in (*expendable, DECISIONS_TABLE) if limits.decisions else expendable:
            while sizes := tables.drop_older(table, before, BATCH):
                _count(removed, table, sizes)
    if limits.bytes is not None:
        excess = tables.stats().bytes - limits.bytes
        excess -= _drop_excess(tables, expendable, excess, removed)
        if limits.decisions:
            _drop_excess(tables, (DECISIONS_TABLE,), excess, removed)
    return StoreStats(**removed)


def _expendable(limits: RetentionLimits) -> tuple[RecordTable, ...]:
    """Returns the tables that may be trimmed, that of entries limited to removable kinds."""
    conditions = [f"({namespace.condition})" for namespace in removable(limits.kinds)]
    return (*EXPENDABLE_TABLES, ENTRIES_TABLE._replace(condition=f"({' OR '.join(conditions)})"))


def _drop_excess(tables: RetentionTables, kinds: Sequence[RecordTable], excess: int, removed: Counter[str]) -> int:
    """Removes the oldest records of all kinds until `excess` bytes or everything is gone; returns the bytes removed."""
    before = removed["bytes"]
    while (freed := removed["bytes"] - before) < excess:
        chosen = list(_oldest(tables, kinds, excess - freed))
        for table in kinds:
            rows = [row for kind, row in chosen if kind is table]
            for start in range(0, len(rows), BATCH):
                _count(removed, table, tables.drop(table, rows[start : start + BATCH]))
        if removed["bytes"] - before == freed:
            break
    return removed["bytes"] - before


def _oldest(
    tables: RetentionTables, kinds: Sequence[RecordTable], excess: int
) -> Iterator[tuple[RecordTable, TableRow]]:
    """Yields the oldest records of all kinds together: enough for `excess` bytes, or as many as were examined."""
    windows = [tables.oldest(table, WINDOW) for table in kinds]
    examined_to = min((rows[-1].at for rows in windows if len(rows) == WINDOW), default=float("inf"))
    dated = [[(row.at, table, row) for row in rows] for table, rows in zip(kinds, windows, strict=True)]
    for at, table, row in merge(*dated, key=lambda item: item[0]):
        if excess <= 0 or at > examined_to:
            return
        excess -= row.size
        yield table, row


def _count(removed: Counter[str], table: RecordTable, sizes: Sequence[int]) -> None:
    removed[table.kind] += len(sizes)
    removed["bytes"] += sum(sizes)
