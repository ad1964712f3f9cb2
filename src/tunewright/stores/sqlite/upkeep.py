"""Upkeep: how much a file keeps, what goes, and what is wrong with it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from tunewright.errors import StoreError
from tunewright.remarks import Remarks
from tunewright.sharing.records import Bounds, Stats
from tunewright.stores import verifying
from tunewright.stores.sqlite.file import SqliteFile
from tunewright.stores.trimming import AT_ONCE, LESSER, STANDING, Pile, Record
from tunewright.stores.trimming import trim as drop_beyond

log = Remarks(__name__)

SMALL = 64 << 20
"""Bytes of a file that is written anew where that alone gives space back: others wait that long."""


_FIRST = {"id": 0, "digest": b""}
_JOURNALS = "(SELECT t.id, digest, body, seal FROM trials t LEFT JOIN problems p ON p.id = problem)"


class SqlitePiles:
    """The tables of a file as piles to be trimmed."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def now(self) -> float:
        """The earlier of two: the clock on the wall, and the same as if it had not been set since boot.

        A clock that jumps ahead thus makes nothing old, and one that jumps back makes what it dated then young.
        """
        return min(time.time(), self._file.now())

    def stats(self) -> Stats:
        """How much there is."""
        parts = [f"SELECT count(*), total({pile.size}) FROM {pile.table}" for pile in (*LESSER, STANDING)]
        rows = self._file.rows(" UNION ALL ".join(parts))
        counts = {pile.kind: row[0] for pile, row in zip((*LESSER, STANDING), rows, strict=True)}
        return Stats(**counts, bytes=int(sum(size for _, size in rows)))

    def drop_older(self, pile: Pile, before: float, most: int) -> Sequence[int]:
        """Drop up to `most` records from before then."""
        old = f"SELECT {pile.id} FROM {pile.table} WHERE {pile.at} < ? LIMIT ?"
        return self._dropped(pile, f"{pile.id} IN ({old})", (before, most))

    def oldest(self, pile: Pile, most: int) -> Sequence[Record]:
        """The oldest records."""
        # Damage can make nothing or text of a number.
        known = f"coalesce(CAST({pile.at} AS REAL), 0.0), {pile.id}, coalesce({pile.size}, 0)"
        asked = f"SELECT {known} FROM {pile.table} ORDER BY {pile.order} LIMIT ?"
        return [Record(*row) for row in self._file.rows(asked, (most,))]

    def drop(self, pile: Pile, records: Sequence[Record]) -> Sequence[int]:
        """Drop these, unless they were replaced meanwhile."""
        marks = ",".join("?" * len(records))
        given = (max(record.at for record in records), *(record.id for record in records))
        return self._dropped(pile, f"coalesce(CAST({pile.at} AS REAL), 0.0) <= ? AND {pile.id} IN ({marks})", given)

    def _dropped(self, pile: Pile, which: str, given: Sequence[object]) -> list[int]:
        with self._file.writing() as connection:
            rows = connection.execute(
                f"DELETE FROM {pile.table} WHERE {which} RETURNING coalesce({pile.size}, 0)", given
            )
            return [size for (size,) in rows.fetchall()]


def trim(file: SqliteFile, bounds: Bounds) -> Stats:
    """Drop what is beyond `bounds` and whatever nobody can want any more, and give the space back; what went."""
    file.change("DELETE FROM entries WHERE until <= ?", (file.now(),))
    gone = drop_beyond(SqlitePiles(file), bounds)
    file.change("DELETE FROM problems WHERE id NOT IN (SELECT problem FROM trials)")
    file.change("DELETE FROM wants WHERE digest IN (SELECT digest FROM decisions)")
    file.change("DELETE FROM leases WHERE boot NOT IN (SELECT boot FROM boots)")
    try:
        _give_back(file)
    except StoreError as error:
        log.info("space is not given back: %s", error)
    return gone


def _give_back(file: SqliteFile) -> None:
    """Shorten the file by what is free in it: page by page, or by writing a small one anew."""
    if file.row("PRAGMA auto_vacuum")[0] == 2:
        while (free := file.row("PRAGMA freelist_count")[0]) > 0:
            file.rows(f"PRAGMA incremental_vacuum({AT_ONCE})")
            if file.row("PRAGMA freelist_count")[0] >= free:
                break
    elif file.path.stat().st_size <= SMALL:
        # From now on it can be shortened page by page.
        file.rows("PRAGMA auto_vacuum = INCREMENTAL")
        file.rows("VACUUM")
    file.rows("PRAGMA wal_checkpoint(PASSIVE)")


def faults(file: SqliteFile) -> Iterator[str]:
    """What SQLite finds wrong with the file, and every record that cannot be believed, in a sentence each."""
    try:
        yield from (f"SQLite says: {line}" for (line,) in file.rows("PRAGMA integrity_check") if line != "ok")
    except StoreError as error:
        yield str(error)

    def pages(columns: str, table: str) -> Iterator[Any]:
        by = columns.partition(",")[0]
        return file.pages(f"SELECT {columns} FROM {table} WHERE {by} > :after ORDER BY {by} LIMIT :count", _FIRST[by])

    yield from verifying.faults(pages, journals=_JOURNALS)
