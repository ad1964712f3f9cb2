"""Trimming: which records of a store of tables go where there are too many, or where they are too old."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import merge
from typing import Any, NamedTuple, Protocol

from tunewright.sharing.records import Bounds, Stats

AT_ONCE = 500
"""Records dropped in one transaction: few enough that others hardly wait."""

LOOKED_AT = 20_000
"""Records of a kind that are looked at to find the oldest of all kinds."""


class Pile(NamedTuple):
    """Where records of one kind lie, in words of SQL: a table, what names a record, since when it is there, its size.

    `order` is what sorts them by age without looking at all of them, where there is such a thing.
    """

    kind: str
    table: str
    id: str
    at: str
    size: str
    order: str


LESSER = (
    Pile("trials", "trials", "id", "at", "length(body)", "id"),
    Pile("generations", "history", "id", "since", "length(body)", "id"),
    Pile("wants", "wants", "digest", "at", "length(key)", "at"),
    Pile("entries", "entries", "id", "at", "length(body)", "id"),
)
STANDING = Pile("decisions", "decisions", "digest", "since", "length(body)", "since")
"""The decisions that stand, which are what a store is for: they go last, if at all."""


class Record(NamedTuple):
    """What must be known of a record to drop it."""

    at: float
    id: Any
    size: int


class Piles(Protocol):
    """What an engine must do for its piles to be trimmed. Each call is a transaction of its own."""

    def now(self) -> float:
        """The time that ages are counted to."""
        ...

    def stats(self) -> Stats:
        """How much there is."""
        ...

    def drop_older(self, pile: Pile, before: float, most: int) -> Sequence[int]:
        """Drop up to `most` records from before then; the bytes of each."""
        ...

    def oldest(self, pile: Pile, most: int) -> Sequence[Record]:
        """The oldest records."""
        ...

    def drop(self, pile: Pile, records: Sequence[Record]) -> Sequence[int]:
        """Drop these, unless they were replaced meanwhile; the bytes of each that went."""
        ...


def trim(piles: Piles, bounds: Bounds) -> Stats:
    """Drop what is beyond `bounds`, oldest first; what went."""
    gone: Counter[str] = Counter()
    if bounds.age is not None:
        before = piles.now() - bounds.age
        for pile in (*LESSER, STANDING) if bounds.decisions else LESSER:
            while sizes := piles.drop_older(pile, before, AT_ONCE):
                _count(gone, pile, sizes)
    if bounds.bytes is not None:
        excess = piles.stats().bytes - bounds.bytes
        excess -= _drop_excess(piles, LESSER, excess, gone)
        if bounds.decisions:
            _drop_excess(piles, (STANDING,), excess, gone)
    return Stats(**gone)


def _drop_excess(piles: Piles, kinds: Sequence[Pile], excess: int, gone: Counter[str]) -> int:
    """Drop the oldest of all kinds until `excess` bytes are gone, or nothing is left; the bytes that went."""
    before = gone["bytes"]
    while (went := gone["bytes"] - before) < excess:
        chosen = list(_oldest(piles, kinds, excess - went))
        for pile in kinds:
            records = [record for kind, record in chosen if kind is pile]
            for start in range(0, len(records), AT_ONCE):
                _count(gone, pile, piles.drop(pile, records[start : start + AT_ONCE]))
        if gone["bytes"] - before == went:
            break
    return gone["bytes"] - before


def _oldest(piles: Piles, kinds: Sequence[Pile], excess: int) -> Iterator[tuple[Pile, Record]]:
    """The oldest records of all kinds together, enough to make up `excess`, or as far as was looked."""
    found = [piles.oldest(pile, LOOKED_AT) for pile in kinds]
    seen_to = min((records[-1].at for records in found if len(records) == LOOKED_AT), default=float("inf"))
    rows = [[(record.at, pile, record) for record in records] for pile, records in zip(kinds, found, strict=True)]
    for at, pile, record in merge(*rows, key=lambda row: row[0]):
        if excess <= 0 or at > seen_to:
            return
        excess -= record.size
        yield pile, record


def _count(gone: Counter[str], pile: Pile, sizes: Sequence[int]) -> None:
    gone[pile.kind] += len(sizes)
    gone["bytes"] += sum(sizes)
