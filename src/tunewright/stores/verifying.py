"""Verifying: which records of a store of tables cannot be believed, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tunewright.errors import StoreError, WireError
from tunewright.stores.bodies import check_digest, read_decision, read_entry, read_key, read_trial

Pages = Callable[[str, str], Iterator[Any]]
"""All rows of a table: given its columns, of which the first tells rows apart, and its name."""


def faults(pages: Pages, *, journals: str = "trials") -> Iterator[str]:
    """Every record that cannot be believed, in a sentence each; `journals` is where trials stand beside digests."""
    yield from _listed(_decisions(pages))
    yield from _listed(_history(pages))
    yield from _listed(_keys(pages, "problems"))
    yield from _listed(_keys(pages, "wants"))
    yield from _listed(_trials(pages, journals))
    yield from _listed(_entries(pages))


def _listed(found: Iterator[str]) -> Iterator[str]:
    """What is found, and what kept us from finding more."""
    try:
        yield from found
    except StoreError as error:
        yield str(error)


def _decisions(pages: Pages) -> Iterator[str]:
    for digest, body, sealed, kernel in pages("digest, body, seal, kernel", "decisions"):
        yield from _said(f"the decision {_short(digest)} of {kernel}", _check_decision, body, sealed, digest)


def _history(pages: Pages) -> Iterator[str]:
    for _, digest, generation, body, sealed in pages("id, digest, generation, body, seal", "history"):
        yield from _said(f"generation {generation} of {_short(digest)}", _check_decision, body, sealed, digest)


def _keys(pages: Pages, table: str) -> Iterator[str]:
    for digest, key, kernel in pages("digest, key, kernel", table):
        yield from _said(f"the key {_short(digest)} of {kernel} in {table}", read_key, key, digest)


def _trials(pages: Pages, journals: str) -> Iterator[str]:
    for number, digest, body, sealed in pages("id, digest, body, seal", journals):
        yield from _said(f"trial {number} of {_short(digest)}", read_trial, body, sealed, digest)


def _entries(pages: Pages) -> Iterator[str]:
    for _, shelf, name, body, sealed in pages("id, shelf, name, body, seal", "entries"):
        yield from _said(f"the entry {name!r} on the shelf {shelf!r}", read_entry, body, sealed, shelf, name)


def _check_decision(body: bytes, sealed: int, digest: bytes) -> None:
    check_digest(read_decision(body, sealed, digest).key, digest)


def _said(what: str, check: Callable[..., object], *given: object) -> Iterator[str]:
    try:
        check(*given)
    except WireError as error:
        yield f"{what}: {error}"


def _short(digest: object) -> str:
    return digest.hex()[:12] if isinstance(digest, bytes) else "no key"
