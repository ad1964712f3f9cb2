"""The audit log: who published which decision, and which one it replaced, in a chain of digests.

Each entry begins with the digest of its own content, which includes the digest of the entry before it. So an entry that
was changed, removed or inserted later is found, unless everything after it was rewritten as well; whoever notes the
last digest elsewhere (services write it to their logs) finds that, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from tunewright.errors import WireError
from tunewright.stores import namespaces, serialization
from tunewright.stores.capabilities import KeepsNamespaces
from tunewright.stores.statistics import LogEntry

AUDIT_LOG = namespaces.AUDIT_LOG.name
"""The namespace of the audit log; the names of its entries are their numbers."""

UNCHAINED_LOG = namespaces.UNCHAINED_LOG.name
"""The namespace of records that versions before the chain wrote."""

_DIGEST_BEGINS, _DIGEST_ENDS = b'{"entry":"', 10 + 64


class AuditRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A publication: its token and request, and the configs that were current before, sent, and current after it.

    `entry` is the digest of everything after it, `previous` that of the entry before this one.
    """

    at: float
    token: str
    request: str
    digest: str
    kernel: str
    asked: dict[str, Any]
    after: dict[str, Any]
    stands: bool
    before: dict[str, Any] | None = None
    signer: str = ""
    number: int = 0
    previous: str = ""
    entry: str = ""


class ChainEnd(NamedTuple):
    """The last entry of a chain: its number and digest."""

    number: int = 0
    digest: str = ""


class ChainReport(NamedTuple):
    """How far a chain is whole, and what is wrong with the first entry that is not."""

    end: ChainEnd
    problem: str = ""


def read_record(body: bytes) -> AuditRecord | None:
    """Decodes a record; returns None if it is damaged."""
    try:
        return serialization.decode(body, AuditRecord)
    except WireError:
        return None


def all_bodies(store: KeepsNamespaces) -> Iterator[bytes]:
    """Yields every entry in a store, oldest first, those of earlier versions included."""
    for log in (UNCHAINED_LOG, AUDIT_LOG):
        yield from (body for _, body in store.entries(log))


def append(record: AuditRecord, end: ChainEnd) -> tuple[AuditRecord, LogEntry]:
    """Returns a record as the one after `end`, and its entry."""
    linked = msgspec.structs.replace(record, number=end.number + 1, previous=end.digest, entry="")
    content = serialization.encode(linked)
    digest = sha256(content).hexdigest()
    body = b'%b%b",%b' % (_DIGEST_BEGINS, digest.encode(), content[1:])
    entry = LogEntry(AUDIT_LOG, entry_name(linked.number), entry_name(end.number) if end.number else "", body)
    return msgspec.structs.replace(linked, entry=digest), entry


def entry_name(number: int) -> str:
    """Returns the name under which an entry is stored."""
    return f"{number:020d}"


def find_end(last: tuple[str, bytes] | None) -> ChainEnd:
    """Returns the end of a log by its last entry. If that is damaged, the chain goes on, and a check names it."""
    if last is None:
        return ChainEnd()
    name, body = last
    return ChainEnd(int(name), _stated_digest(body) or sha256(body).hexdigest())


def check_chain(bodies: Iterable[bytes], end: ChainEnd) -> ChainReport:
    """Follows a chain from `end`; names the first entry that was changed, is missing or does not belong there."""
    for body in bodies:
        record, expected = read_record(body), end.number + 1
        if record is None or not record.number or _content_digest(body) != record.entry:
            return ChainReport(end, f"entry {expected} was changed: its content does not match its digest")
        if record.number > expected:
            return ChainReport(end, f"entry {expected} is missing: entry {end.number} is followed by {record.number}")
        if record.number < expected or record.previous != end.digest:
            return ChainReport(
                end, f"entry {expected} does not follow entry {end.number}: it was inserted or rewritten"
            )
        end = ChainEnd(record.number, record.entry)
    return ChainReport(end)


def _stated_digest(body: bytes) -> str:
    """Returns the digest at the beginning of an entry; empty if there is none."""
    stated = body[len(_DIGEST_BEGINS) : _DIGEST_ENDS]
    return stated.decode(errors="replace") if body.startswith(_DIGEST_BEGINS) and len(stated) == 64 else ""


def _content_digest(body: bytes) -> str:
    """Returns the digest of what follows the stated one."""
    return sha256(b"{" + body[_DIGEST_ENDS + 2 :]).hexdigest()
