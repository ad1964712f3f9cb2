"""Records as stores keep them: serialized, with a checksum. Damaged records are detected and skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import compress
from operator import attrgetter
from typing import TypeVar
from zlib import crc32

from tunewright.errors import WireError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.stores import serialization

log = LazyLogger(__name__)

T = TypeVar("T")

_ends, _END = bytes.endswith, attrgetter("record_end")

_RESIDUE = 0x2144DF1C
"""The CRC of any bytes that are followed by their own CRC, lowest byte first."""

RELATED_PREFIX_BYTES = 8
"""How many bytes of the digest of related keys are indexed; matches are compared with the whole digest."""


MAX_RECORD_BYTES = 1 << 20
"""Bytes of a decision or a trial; no honest one comes near."""

MAX_DECODED = 64
"""Decisions of one look-up that are decoded at once, so that malformed ones are misses."""


def checksum(body: bytes, context: bytes) -> int:
    """Returns a CRC that shows whether `body` is what was written, and in this context.

    A flipped bit may leave valid JSON with another meaning.
    """
    return crc32(body, crc32(context))


def checksums(bodies: Iterable[bytes], context: bytes) -> list[int]:
    """Returns the checksums of bodies in one context."""
    start = crc32(context)
    return [crc32(body, start) for body in bodies]


def with_checksum(body: bytes, context: bytes) -> bytes:
    """Returns a body followed by its checksum, for stores that keep a single value."""
    return body + checksum(body, context).to_bytes(4, "little")


def split_checksum(value: bytes) -> tuple[bytes, int]:
    """Returns a body and its checksum; for any other bytes, two parts that do not match."""
    return value[:-4], int.from_bytes(value[-4:], "little")


def _verify(body: bytes, crc: int, context: bytes) -> bytes:
    # Damage can turn bytes into text, a number or NULL.
    if body.__class__ is not bytes or context.__class__ is not bytes or checksum(body, context) != crc:
        raise WireError("its checksum does not match")
    return body


def _bounded(body: bytes) -> bytes:
    if len(body) > MAX_RECORD_BYTES:
        raise WireError(f"it has more than {MAX_RECORD_BYTES:,} bytes")
    return body


def read_decision(body: bytes, crc: int, digest: bytes) -> Decision:
    """Returns the decision in `body`; raises WireError if it is damaged, of another schema or for another key."""
    decision = serialization.load_decision(_bounded(_verify(body, crc, digest)))
    check_digest(decision.key, digest)
    return decision


def _read_decision_lazily(body: bytes, crc: int, digest: bytes, key: Key) -> Decision:
    return serialization.load_decision_lazily(_bounded(_verify(body, crc, digest)), key)


def read_trial(body: bytes, crc: int, digest: bytes) -> Trial:
    """Returns the trial in `body`; raises WireError if it is damaged, of another schema or of another journal."""
    return serialization.load_trial(_bounded(_verify(body, crc, digest)))


def read_entry(body: bytes, crc: int, namespace: str, name: str) -> bytes:
    """Returns `body` itself; raises WireError if it is damaged or was stored under another name."""
    return _verify(body, crc, entry_context(namespace, name))


def read_key(body: bytes, digest: bytes) -> Key:
    """Returns the key in `body`; raises WireError if it is damaged or has another digest."""
    if not isinstance(body, bytes | str):
        raise WireError("it is not text")
    key = serialization.load_key(body)
    check_digest(key, digest)
    return key


def check_digest(key: Key, digest: bytes) -> None:
    """Raises WireError if `key` has another digest."""
    if digest.__class__ is not bytes or key.digest != digest.hex():
        raise WireError(f"it is for another key, {key.digest[:12]}")


def by_digest(keys: Sequence[Key]) -> dict[bytes, Key]:
    """Returns keys by their digests, without duplicates."""
    return dict(zip(map(bytes.fromhex, [key.digest for key in keys]), keys, strict=True))


def batches(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Returns the items in order, at most `size` in each part."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def related_prefix(key: Key) -> bytes:
    """Returns the indexed part of the digest that a key shares with related keys."""
    return bytes.fromhex(key.related_digest[: 2 * RELATED_PREFIX_BYTES])


def entry_context(namespace: str, name: str) -> bytes:
    """Returns the context of the checksum of an entry."""
    return f"{namespace}\0{name}".encode()


def _all_end(bodies: Sequence[bytes], keys: Sequence[Key]) -> bool:
    """Whether all records have the end of their keys, and none is too large."""
    return max(map(len, bodies)) <= MAX_RECORD_BYTES and all(map(_ends, bodies, map(_END, keys)))


class RecordReader:
    """Reads the records of one store; damaged records are skipped, with one warning."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._warned = False

    def decision(self, digest: bytes, body: bytes, crc: int, key: Key | None = None) -> Decision | None:
        """Returns the decision in `body`; if its key is given, it is decoded on first use."""
        if key is None:
            return self.read_or_skip("a decision", read_decision, body, crc, digest)
        # Inlined: a look-up in a file takes hardly longer than this.
        is_ours = body.__class__ is bytes and crc32(body, crc32(digest)) == crc and body.endswith(key.record_end)
        if is_ours and len(body) <= MAX_RECORD_BYTES:
            return Decision.from_body(key, body, serialization.load_content)
        return self.read_or_skip("a decision", _read_decision_lazily, body, crc, digest, key)

    def current(self, digest: bytes, body: bytes, crc: int, key: Key) -> Decision | None:
        """Returns the decision in `body`, decoded: a writer must not take a malformed one for the current one."""
        decision = self.decision(digest, body, crc, key)
        return decision if decision is not None and self.is_readable(decision) else None

    def decisions(self, rows: Sequence[tuple[bytes, bytes, int]], keys: Mapping[bytes, Key]) -> dict[Key, Decision]:
        """Returns the valid decisions of rows that have the digest of one of `keys`, a body and its checksum."""
        if not rows:
            return {}
        digests, bodies, crcs = zip(*rows, strict=True)
        # All at once, which makes a batch fast: whole records of our schema are not decoded.
        with suppress(TypeError):  # damage can turn bytes into text, a number or NULL
            found = [keys[digest] for digest in digests]
            if tuple(map(crc32, bodies, map(crc32, digests))) == crcs and _all_end(bodies, found):
                return Decision.from_bodies(found, bodies, serialization.load_content)
        decisions = (self.decision(*row, keys[row[0]]) for row in rows)
        return {decision.key: decision for decision in decisions if decision is not None}

    def decisions_from_values(
        self, digests: Sequence[bytes], values: Sequence[bytes | None], keys: Sequence[Key]
    ) -> dict[Key, Decision]:
        """Returns the valid decisions of bodies with their checksums behind them, or None, in the order of `keys`."""
        present = [value for value in values if value is not None]
        if len(present) < len(keys):
            mask = [value is not None for value in values]
            digests, keys = list(compress(digests, mask)), list(compress(keys, mask))
        if set(map(crc32, present, map(crc32, digests))) == {_RESIDUE}:
            bodies = [value[:-4] for value in present]
            if _all_end(bodies, keys):
                return Decision.from_bodies(keys, bodies, serialization.load_content)
        rows = zip(digests, present, keys, strict=True)
        decisions = (self.decision(digest, *split_checksum(value), key) for digest, value, key in rows)
        return {decision.key: decision for decision in decisions if decision is not None}

    def is_readable(self, decision: Decision) -> bool:
        """Whether the record of a decision can be decoded, which happens on first use: it may be sealed nonsense."""
        return self.read_or_skip("a decision", getattr, decision, "config") is not None

    def readable(self, decisions: dict[Key, Decision]) -> dict[Key, Decision]:
        """Returns those that can be decoded. A large batch is returned as it is: most of it is never used."""
        if len(decisions) > MAX_DECODED:
            return decisions
        return {key: decision for key, decision in decisions.items() if self.is_readable(decision)}

    def read_or_skip(self, what: str, read: Callable[..., T], *args: object) -> T | None:
        """Returns `read(*args)`; None if the record is damaged."""
        try:
            return read(*args)
        except WireError as error:
            report = log.debug if self._warned else log.warning  # one warning, then debug messages
            self._warned = True
            report(
                "skipping %s in %s: %s; `tunewright store verify` lists all damaged records", what, self._store, error
            )
            return None
