"""What the keys and values of a Redis store are called, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence

from tunewright.errors import WireError
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.stores import serialization
from tunewright.stores.records import checksum
from tunewright.stores.statistics import MissRecord

PREFIX = "tunewright:1:"
"""The beginning of all our keys; the number is the version of the layout."""


def decision_key(digest: str) -> str:
    """Returns the key of a decision."""
    return f"{PREFIX}decision:{digest}"


def mark_key(digest: str) -> str:
    """Returns the key of the mark of a decision that is being changed."""
    return f"{PREFIX}changing:{digest}"


def kernel_key(kernel: str) -> str:
    """Returns the key of the set of the decisions of a kernel."""
    return f"{PREFIX}kernel:{kernel}"


def related_key(key: Key) -> str:
    """Returns the key of the set of decisions for related keys."""
    return f"{PREFIX}kin:{key.related_digest}"


def decision_keys(key: Key) -> list[str]:
    """Returns the keys that a decision is stored under and listed in."""
    return [decision_key(key.digest), kernel_key(key.kernel), related_key(key)]


def journal_key(digest: str) -> str:
    """Returns the key of a journal."""
    return f"{PREFIX}journal:{digest}"


def journals_key(kernel: str) -> str:
    """Returns the key of the journals of a kernel."""
    return f"{PREFIX}journals:{kernel}"


def entry_prefix(namespace: str) -> str:
    """Returns the beginning of the keys of entries; the length keeps «a:b», «c» apart from «a», «b:c»."""
    return f"{PREFIX}shelf:{len(namespace)}:{namespace}:"


def order_key(namespace: str) -> str:
    """Returns the key of the order of the entries of a namespace."""
    return f"{PREFIX}order:{namespace}"


def read_trials(journal: bytes, crc: int, digest: bytes) -> Sequence[Trial]:
    """Returns the trials of a batch; raises WireError if it is damaged, of another schema or of another journal."""
    if checksum(journal, digest) != crc:
        raise WireError("its checksum does not match")
    return serialization.load_journal(journal)


def read_miss(body: bytes, digest: bytes, calls: bytes | None, seconds: float) -> MissRecord:
    """Returns a miss; raises WireError if it is malformed or for another key."""
    miss = serialization.decode(body, MissRecord)
    if miss.key.digest.encode() != digest:
        raise WireError(f"it is for another key, {miss.key.digest[:12]}")
    if not (calls or b"0").isdigit():
        raise WireError("its number of calls is not a number")
    return MissRecord(miss.key, int(calls or 0), seconds, miss.target, miss.recipe)
