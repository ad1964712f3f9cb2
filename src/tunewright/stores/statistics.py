"""Records that a store keeps about itself: misses, trial counts, revisions, log entries, sizes and retention limits."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tunewright.model.decision import Decision
from tunewright.model.key import Key


class MissRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key that was looked up and had no decision: how often, and how long the calls took.

    `target` says where the kernel is defined (`module:name`), `recipe` how to make similar arguments.
    """

    key: Key
    calls: int = 1
    seconds: float = 0.0
    target: str = ""
    recipe: str = ""


class RefusedWrite(msgspec.Struct, frozen=True):
    """A write that a remote store refused, and why: a decision, or so many trials, of a key."""

    key: Key
    reason: str
    decision: Decision | None = None
    trials: int = 0


class TrialCount(msgspec.Struct, frozen=True):
    """The number of trials of a key, and when the last was recorded in seconds since 1970; 0 if that is unknown."""

    key: Key
    trials: int
    last: float = 0.0


class Revision(msgspec.Struct, frozen=True):
    """A decision that was current for its key since a time, in seconds since 1970."""

    number: int
    since: float
    decision: Decision


class LogEntry(NamedTuple):
    """An entry to append to a log: its name must be free, and `after` the name of the last one, empty if none is."""

    log: str
    name: str
    after: str
    body: bytes


class StoreStats(msgspec.Struct, frozen=True):
    """How much a store keeps; `generations` counts earlier decisions, `entries` those of all namespaces.

    `bytes` is the size of the records, without the overhead of the database.
    """

    decisions: int = 0
    generations: int = 0
    trials: int = 0
    wants: int = 0
    entries: int = 0
    bytes: int = 0


class RetentionLimits(msgspec.Struct, frozen=True):
    """What may stay: nothing older than `age` seconds, and at most `bytes` in total; None means no limit.

    Current decisions stay whatever their age, unless `decisions` is set: they are small, and what a store is for.
    `kinds` are entries that are removed only on request, such as `memo`.
    """

    age: float | None = None
    bytes: int | None = None
    decisions: bool = False
    kinds: tuple[str, ...] = ()
