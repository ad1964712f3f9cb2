"""Asking: what requests and answers look like; anything else is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from litestar.exceptions import HTTPException

from tunewright.model.key import Key
from tunewright.sharing.records import Want

MOST_AT_ONCE = 10_000
MOST_TEXT = 10_000
MOST_RECORD = 1 << 20

MOST_CALLS, MOST_SECONDS = (1 << 53) - 1, 1e12
"""Beyond which counts and times can no longer be added up."""

_HEX = re.compile(r"[0-9a-f]{64}")

KEPT = r"^[^\u0000]*$"
"""Texts that every store keeps."""

NAMED = r"^[^\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]+$"
"""Names that look like what they are: none of their characters is a control, unseen, or turns others round."""

NAME = "^(?!service:)" + NAMED[1:]
"""Names of leases and shelves: what a service keeps for itself is out of reach."""

_NAMED = re.compile(NAMED)

Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1000, pattern=NAME)]
Moment = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What any request may say, which is nothing beyond its fields."""


class Lookup(Asked, frozen=True):
    """Decisions asked for by the digests of their keys."""

    digests: Annotated[list[str], msgspec.Meta(max_length=MOST_AT_ONCE)]


class Question(Asked, frozen=True):
    """A key, and that of the call itself where it stands for a bucket."""

    key: Key
    exact: Key | None = None


class Nearest(Asked, frozen=True):
    """Questions to be answered by tiers; unless answers to `like` questions do, only the question itself is."""

    questions: Annotated[list[Question], msgspec.Meta(max_length=1000)]
    like: bool = True


class Kin(Asked, frozen=True):
    """Decisions asked for whose keys differ from this one in sizes and device alone."""

    key: Key
    most: Annotated[int, msgspec.Meta(ge=0, le=MOST_AT_ONCE)] = 1000


class Publication(Asked, frozen=True):
    """A decision to stand for its key: if there is none, or, if `over` is given, in the place of that record.

    `over` is the SHA-256 of the record that stands, so that a publication cannot be sent twice with effect.
    """

    decision: dict[str, Any]
    over: Digest | None = None
    signature: Annotated[str, msgspec.Meta(max_length=200)] = ""


class Wanting(Asked, frozen=True):
    """Calls and seconds of keys that have no decision."""

    wants: Annotated[list[Want], msgspec.Meta(max_length=MOST_AT_ONCE)]


class Claim(Asked, frozen=True):
    """A lease to be taken or renewed."""

    name: Name
    owner: Name
    seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class Release(Asked, frozen=True):
    """A lease to be given back."""

    name: Name
    owner: Name


class Fetching(Asked, frozen=True):
    """Entries of a shelf, by name."""

    shelf: Name
    names: Annotated[list[Name], msgspec.Meta(max_length=MOST_AT_ONCE)]


class Keeping(Asked, frozen=True):
    """An entry for a shelf."""

    shelf: Name
    name: Name
    body: bytes
    seconds: Moment | None = None
    replace: bool = True


class Clearing(Asked, frozen=True):
    """A shelf to be cleared, but for its youngest entries."""

    shelf: Name
    most: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)] = 0


def is_digest(text: str) -> bool:
    """Whether a text can be the digest of something: it is never a path, nor anything else."""
    return _HEX.fullmatch(text) is not None


def objection(key: Key) -> str:
    """Why a key is not taken in, or nothing."""
    if not is_printed(key.kernel) or len(key.kernel) > 1000:
        return "the name of a kernel has 1 to 1,000 characters that can be printed"
    for part in _parts(key):
        if isinstance(part, str) and (len(part) > MOST_TEXT or not _is_text(part)):
            return f"{part[:40]!r} in the key is too long, or has characters that no store keeps"
        if isinstance(part, int) and not -(1 << 63) <= part < 1 << 63:
            return "a size of the key is no 64-bit number"
    return ""


def checked(key: Key) -> Key:
    """A key that may be kept or asked for; an HTTPException for any other."""
    if wrong := objection(key):
        raise HTTPException(status_code=400, detail=wrong)
    return key


def _parts(value: Any) -> Iterator[str | int]:
    """Every text and number in a value, names included."""
    if isinstance(value, msgspec.Struct):
        value = [getattr(value, name) for name in value.__struct_fields__]
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        for part in value:
            yield from _parts(part)
    else:
        yield value


def unwanted(want: Want) -> str:
    """Why a want is not taken in, or nothing."""
    texts = (want.target, want.recipe)
    if any(len(text) > MOST_RECORD or not _is_text(text) for text in texts):
        return "the target or recipe of a want is too long, or has characters that no store keeps"
    if not 0 <= want.calls <= MOST_CALLS or not 0 <= want.seconds <= MOST_SECONDS:
        return "the calls and seconds of a want are not numbers that can be added up"
    return objection(want.key)


def is_name(text: str) -> bool:
    """Whether a lease or a shelf may be called so."""
    return is_printed(text) and not text.startswith("service:")


def is_printed(text: str) -> bool:
    """Whether a text looks like what it is."""
    return _NAMED.fullmatch(text) is not None and _is_text(text)


def _is_text(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)
