"""Schemas of request bodies; a request that does not match is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from litestar.exceptions import HTTPException

from tunewright.model.key import Key
from tunewright.stores.statistics import MissRecord

MAX_BATCH = 10_000
MAX_TEXT = 10_000
MAX_RECORD_BYTES = 1 << 20

MAX_CALLS, MAX_SECONDS = (1 << 53) - 1, 1e12
"""Limits up to which counts and times can be added without loss."""

_DIGEST = re.compile(r"[0-9a-f]{64}")

STORABLE_PATTERN = r"^[^\u0000]*$"
"""Texts that every store can keep."""

PRINTABLE_PATTERN = r"^[^\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]+$"
"""Names without control characters, invisible characters and changes of text direction."""

NAME_PATTERN = "^(?!service:)" + PRINTABLE_PATTERN[1:]
"""Names of leases and namespaces; those of the service itself are reserved."""

_PRINTABLE = re.compile(PRINTABLE_PATTERN)

Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1000, pattern=NAME_PATTERN)]
Duration = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class RequestSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all request bodies; unknown fields are refused."""


class LookupRequest(RequestSchema, frozen=True):
    """Looks up decisions by the digests of their keys."""

    digests: Annotated[list[str], msgspec.Meta(max_length=MAX_BATCH)]


class KeyQuery(RequestSchema, frozen=True):
    """A key, and if it is the key of a bucket, the exact key of the call."""

    key: Key
    exact: Key | None = None


class NearestRequest(RequestSchema, frozen=True):
    """Asks for the nearest decisions of keys; without `like`, only exact ones."""

    questions: Annotated[list[KeyQuery], msgspec.Meta(max_length=1000)]
    like: bool = True


class RelatedRequest(RequestSchema, frozen=True):
    """Asks for decisions whose keys differ from this one only in sizes and device."""

    key: Key
    most: Annotated[int, msgspec.Meta(ge=0, le=MAX_BATCH)] = 1000


class PublishRequest(RequestSchema, frozen=True):
    """Publishes a decision if its key has none, or if `over` is given, in place of that record.

    `over` is the SHA-256 of the current record, so that a request that is sent again has no effect.
    """

    decision: dict[str, Any]
    over: Digest | None = None
    signature: Annotated[str, msgspec.Meta(max_length=200)] = ""


class MissesRequest(RequestSchema, frozen=True):
    """Adds calls and seconds of keys that have no decision."""

    wants: Annotated[list[MissRecord], msgspec.Meta(max_length=MAX_BATCH)]


class ClaimRequest(RequestSchema, frozen=True):
    """Takes or renews a lease."""

    name: Name
    owner: Name
    seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class ReleaseRequest(RequestSchema, frozen=True):
    """Gives a lease back."""

    name: Name
    owner: Name


class FetchRequest(RequestSchema, frozen=True):
    """Fetches entries of a namespace by name."""

    shelf: Name
    names: Annotated[list[Name], msgspec.Meta(max_length=MAX_BATCH)]


class KeepRequest(RequestSchema, frozen=True):
    """Stores an entry in a namespace."""

    shelf: Name
    name: Name
    body: bytes
    seconds: Duration | None = None
    replace: bool = True


class ClearRequest(RequestSchema, frozen=True):
    """Drops all but the newest entries of a namespace."""

    shelf: Name
    most: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)] = 0


def is_digest(text: str) -> bool:
    """Whether a text is a SHA-256 in hexadecimal."""
    return _DIGEST.fullmatch(text) is not None


def key_problem(key: Key) -> str:
    """Returns why a key is refused, or an empty text."""
    if not is_printable(key.kernel) or len(key.kernel) > 1000:
        return "the name of a kernel must have 1 to 1,000 printable characters"
    for part in _parts(key):
        if isinstance(part, str) and (len(part) > MAX_TEXT or not _is_storable(part)):
            return f"{part[:40]!r} in the key is too long, or has characters that cannot be stored"
        if isinstance(part, int) and not -(1 << 63) <= part < 1 << 63:
            return "a size in the key is not a 64-bit number"
    return ""


def require_valid_key(key: Key) -> Key:
    """Returns `key`; raises status 400 if it is refused."""
    if problem := key_problem(key):
        raise HTTPException(status_code=400, detail=problem)
    return key


def _parts(value: Any) -> Iterator[str | int]:
    """Yields every text and number in a value, including names."""
    if isinstance(value, msgspec.Struct):
        value = [getattr(value, name) for name in value.__struct_fields__]
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        for part in value:
            yield from _parts(part)
    else:
        yield value


def miss_problem(miss: MissRecord) -> str:
    """Returns why a miss is refused, or an empty text."""
    texts = (miss.target, miss.recipe)
    if any(len(text) > MAX_RECORD_BYTES or not _is_storable(text) for text in texts):
        return "the target or recipe of a miss is too long, or has characters that cannot be stored"
    if not 0 <= miss.calls <= MAX_CALLS or not 0 <= miss.seconds <= MAX_SECONDS:
        return "the calls or seconds of a miss are out of range"
    return key_problem(miss.key)


def is_name(text: str) -> bool:
    """Whether a text is a valid name of a lease or namespace."""
    return is_printable(text) and not text.startswith("service:")


def is_printable(text: str) -> bool:
    """Whether a text has only visible characters."""
    return _PRINTABLE.fullmatch(text) is not None and _is_storable(text)


def _is_storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)
