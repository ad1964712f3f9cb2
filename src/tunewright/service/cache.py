"""An in-process cache of records that were looked up recently; never older than what this process published."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

RECORD_OFFSET = len(b'"":') + 64
"""Where the record begins in a fragment."""

ENTRY_OVERHEAD = 250
"""Bytes that an entry of a dictionary takes in addition to the record."""


class PendingRead:
    """A read of the store that is under way, and the digests that were published since it began."""

    def __init__(self) -> None:
        self.invalidated: set[str] = set()


class RecordCache:
    """Records by digest, each valid for some seconds, limited in bytes. Not thread-safe: used by the event loop only.

    Records are kept as fragments of the JSON of a batch response, `"digest":record`, so that a response is one join.
    There are two generations: an entry that is used moves to the young one; when that is full, it replaces the old.
    """

    def __init__(self, max_bytes: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes, self._seconds, self._clock = max_bytes // 2, seconds, clock
        self._young: dict[str, tuple[bytes, float]] = {}
        self._old: dict[str, tuple[bytes, float]] = {}
        self._bytes = 0
        self._pending: set[PendingRead] = set()

    def get(self, digest: str) -> bytes | None:
        """Returns the record with this digest, if it is still valid."""
        fragment = self._fragment(digest, self._clock())
        return None if fragment is None else fragment[RECORD_OFFSET:]

    def get_many(self, digests: Iterable[str]) -> tuple[dict[str, bytes], list[str]]:
        """Returns the fragments of the cached records, and the digests of the others."""
        young, now = self._young, self._clock()
        fragments: dict[str, bytes] = {}
        missing = []
        for digest in digests:
            entry = young.get(digest)
            if entry is not None and entry[1] >= now:
                fragments[digest] = entry[0]
            elif (fragment := self._fragment(digest, now)) is not None:
                fragments[digest] = fragment
            else:
                missing.append(digest)
        return fragments, missing

    def _fragment(self, digest: str, now: float) -> bytes | None:
        if (entry := self._young.get(digest)) is None:
            if (entry := self._old.pop(digest, None)) is None:
                return None
            self._add(digest, entry)
        if entry[1] < now:
            self._young.pop(digest, None)
            return None
        return entry[0]

    def begin_read(self) -> PendingRead:
        """Registers a read of the store that is about to start."""
        read = PendingRead()
        self._pending.add(read)
        return read

    def finish_read(self, read: PendingRead, records: Mapping[str, bytes]) -> dict[str, bytes]:
        """Caches the records of a read, except those published since it began; returns all of them as fragments."""
        self._pending.discard(read)
        until = self._clock() + self._seconds
        fragments = {digest: b'"%s":%s' % (digest.encode(), record) for digest, record in records.items()}
        for digest, fragment in fragments.items():
            if digest not in read.invalidated:
                self._add(digest, (fragment, until))
        return fragments

    def invalidate(self, digests: Sequence[str]) -> None:
        """Drops records that may have changed, also those that are being read."""
        for digest in digests:
            self._young.pop(digest, None)
            self._old.pop(digest, None)
            for read in self._pending:
                read.invalidated.add(digest)

    def _add(self, digest: str, entry: tuple[bytes, float]) -> None:
        if self._bytes > self._max_bytes:
            self._old, self._young, self._bytes = self._young, {}, 0
        self._young[digest] = entry
        self._bytes += len(entry[0]) + ENTRY_OVERHEAD
