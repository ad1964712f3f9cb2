"""Upkeep: how much a server keeps, what goes, and what is wrong with it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from tunewright.sharing.records import Bounds, Stats
from tunewright.stores import verifying
from tunewright.stores.postgres.server import Server
from tunewright.stores.trimming import LESSER, STANDING, Pile, Record
from tunewright.stores.trimming import trim as drop_beyond

SECONDS = 600.0
"""How long one statement of upkeep may take: it may have to look at everything."""

_FIRST = {"id": 0, "digest": b""}


class PostgresPiles:
    """The tables of a server as piles to be trimmed."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def now(self) -> float:
        """The earlier of two, the server's clock and ours: one of them that jumps ahead makes nothing old."""
        return min(time.time(), float(self._server.rows("SELECT extract(epoch FROM now())::float8")[0][0]))

    def stats(self) -> Stats:
        """How much there is."""
        counts, size = {}, 0
        for pile in (*LESSER, STANDING):
            asked = f"SELECT count(*), coalesce(sum({pile.size}), 0)::bigint FROM {pile.table}"
            ((counts[pile.kind], more),) = self._server.rows(asked)
            size += more
        return Stats(**counts, bytes=size)

    def drop_older(self, pile: Pile, before: float, most: int) -> Sequence[int]:
        """Drop up to `most` records from before then."""
        old = f"ARRAY(SELECT {pile.id} FROM {pile.table} WHERE {pile.at} < %b LIMIT %b)"
        return self._dropped(pile, f"{pile.id} = ANY({old})", (before, most))

    def oldest(self, pile: Pile, most: int) -> Sequence[Record]:
        """The oldest records."""
        asked = f"SELECT {pile.at}, {pile.id}, {pile.size} FROM {pile.table} ORDER BY {pile.order} LIMIT %b"
        return [Record(*row) for row in self._server.rows(asked, (most,))]

    def drop(self, pile: Pile, records: Sequence[Record]) -> Sequence[int]:
        """Drop these, unless they were replaced meanwhile."""
        given = (max(record.at for record in records), [record.id for record in records])
        return self._dropped(pile, f"{pile.at} <= %b AND {pile.id} = ANY(%b)", given)

    def _dropped(self, pile: Pile, which: str, given: Sequence[object]) -> list[int]:
        # Made again after a broken line, it would drop more of the same: what is beyond the bounds.
        rows = self._server.rows(f"DELETE FROM {pile.table} WHERE {which} RETURNING {pile.size}", given)
        return [size for (size,) in rows]


def trim(server: Server, bounds: Bounds) -> Stats:
    """Drop what is beyond `bounds`, and whatever nobody can want any more; what went.

    The key of a journal stays when its trials go: it is small, and someone may be about to append.
    """
    server.rows("DELETE FROM entries WHERE until <= extract(epoch FROM now())")
    server.rows("DELETE FROM leases WHERE until <= now()")
    server.rows("DELETE FROM wants w USING decisions d WHERE d.digest = w.digest")
    return drop_beyond(PostgresPiles(server), bounds)


def faults(server: Server) -> Iterator[str]:
    """Every record that cannot be believed, in a sentence each."""

    def pages(columns: str, table: str) -> Iterator[Any]:
        by = columns.partition(",")[0]
        return server.pages(f"SELECT {columns} FROM {table} WHERE {by} > %b ORDER BY {by} LIMIT %b", _FIRST[by])

    return verifying.faults(pages)
