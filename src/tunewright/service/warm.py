"""Warm: records that were looked up a moment ago, in this process; never older than what this process published."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

NAME = len(b'"":') + 64
"""Where the record begins in a part."""

OVERHEAD = 250
"""Bytes that a dictionary and its parts take beside the record."""


class Flight:
    """A read of the store that is under way, and which of its answers have become old meanwhile."""

    def __init__(self) -> None:
        self.spoiled: set[str] = set()


class Warm:
    """Records by digest, each for a while, in a bounded number of bytes. For one thread: that of the event loop.

    They are kept as parts of the JSON that a batch is answered with, `"digest":record`, which are only joined then.
    There are two halves. What is used moves to the younger; when it is full, the elder goes and it takes its place.
    """

    def __init__(self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = most // 2, seconds, clock
        self._young: dict[str, tuple[bytes, float]] = {}
        self._old: dict[str, tuple[bytes, float]] = {}
        self._bytes = 0
        self._flights: set[Flight] = set()

    def get(self, digest: str) -> bytes | None:
        """The record with that digest, if it is still fresh."""
        part = self._part(digest, self._clock())
        return None if part is None else part[NAME:]

    def get_many(self, digests: Iterable[str]) -> tuple[dict[str, bytes], list[str]]:
        """The parts of the records that are warm, and the digests of the others."""
        young, now = self._young, self._clock()
        found: dict[str, bytes] = {}
        missing = []
        for digest in digests:
            there = young.get(digest)
            if there is not None and there[1] >= now:
                found[digest] = there[0]
            elif (part := self._part(digest, now)) is not None:
                found[digest] = part
            else:
                missing.append(digest)
        return found, missing

    def _part(self, digest: str, now: float) -> bytes | None:
        if (found := self._young.get(digest)) is None:
            if (found := self._old.pop(digest, None)) is None:
                return None
            self._add(digest, found)
        if found[1] < now:
            self._young.pop(digest, None)
            return None
        return found[0]

    def begin(self) -> Flight:
        """Say that the store is about to be read."""
        flight = Flight()
        self._flights.add(flight)
        return flight

    def end(self, flight: Flight, found: Mapping[str, bytes]) -> dict[str, bytes]:
        """Keep the records that a read found, but for what was published since it began; all of them as parts."""
        self._flights.discard(flight)
        until = self._clock() + self._seconds
        parts = {digest: b'"%s":%s' % (digest.encode(), record) for digest, record in found.items()}
        for digest, part in parts.items():
            if digest not in flight.spoiled:
                self._add(digest, (part, until))
        return parts

    def change(self, digests: Sequence[str]) -> None:
        """Drop what may have changed, also where it is being read."""
        for digest in digests:
            self._young.pop(digest, None)
            self._old.pop(digest, None)
            for flight in self._flights:
                flight.spoiled.add(digest)

    def _add(self, digest: str, entry: tuple[bytes, float]) -> None:
        if self._bytes > self._most:
            self._old, self._young, self._bytes = self._young, {}, 0
        self._young[digest] = entry
        self._bytes += len(entry[0]) + OVERHEAD
