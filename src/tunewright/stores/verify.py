"""Verification: which records of a database are damaged, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tunewright.errors import StoreError, WireError
from tunewright.stores.records import check_digest, read_decision, read_entry, read_key, read_trial

PageReader = Callable[[str, str], Iterator[Any]]
"""Yields all rows of a table, given its columns, of which the first is unique, and its name."""


def find_faults(pages: PageReader, *, journals: str = "trials") -> Iterator[str]:
    """Yields one sentence for each damaged record; `journals` names a table of trials that has their digests."""
    yield from _with_store_errors(_decisions(pages))
    yield from _with_store_errors(_history(pages))
    yield from _with_store_errors(_keys(pages, "problems"))
    yield from _with_store_errors(_keys(pages, "wants"))
    yield from _with_store_errors(_trials(pages, journals))
    yield from _with_store_errors(_entries(pages))


def _with_store_errors(faults: Iterator[str]) -> Iterator[str]:
    """Yields the faults, and the error that ended the search for more."""
    try:
        yield from faults
    except StoreError as error:
        yield str(error)


def _decisions(pages: PageReader) -> Iterator[str]:
    for digest, body, crc, kernel in pages("digest, body, seal, kernel", "decisions"):
        yield from _check(f"the decision {_short(digest)} of {kernel}", _check_decision, body, crc, digest)


def _history(pages: PageReader) -> Iterator[str]:
    for _, digest, number, body, crc in pages("id, digest, generation, body, seal", "history"):
        yield from _check(f"revision {number} of {_short(digest)}", _check_decision, body, crc, digest)


def _keys(pages: PageReader, table: str) -> Iterator[str]:
    for digest, key, kernel in pages("digest, key, kernel", table):
        yield from _check(f"the key {_short(digest)} of {kernel} in {table}", read_key, key, digest)


def _trials(pages: PageReader, journals: str) -> Iterator[str]:
    for number, digest, body, crc in pages("id, digest, body, seal", journals):
        yield from _check(f"trial {number} of {_short(digest)}", read_trial, body, crc, digest)


def _entries(pages: PageReader) -> Iterator[str]:
    for _, namespace, name, body, crc in pages("id, shelf, name, body, seal", "entries"):
        what = f"the entry {name!r} in the namespace {namespace!r}"
        yield from _check(what, read_entry, body, crc, namespace, name)


def _check_decision(body: bytes, crc: int, digest: bytes) -> None:
    check_digest(read_decision(body, crc, digest).key, digest)


def _check(what: str, read: Callable[..., object], *args: object) -> Iterator[str]:
    try:
        read(*args)
    except WireError as error:
        yield f"{what}: {error}"


def _short(digest: object) -> str:
    return digest.hex()[:12] if isinstance(digest, bytes) else "no key"
