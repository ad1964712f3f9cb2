"""Records: what a store tells of itself: wants, tallies, generations, how much there is and how much may stay."""

from __future__ import annotations

import msgspec

from tunewright.model.decision import Decision
from tunewright.model.key import Key


class Want(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key that was asked for and had no decision: how often, and how long the calls took.

    `target` says where the kernel is found (`module:name`), `recipe` how to make arguments like those it was given.
    """

    key: Key
    calls: int = 1
    seconds: float = 0.0
    target: str = ""
    recipe: str = ""


class Tally(msgspec.Struct, frozen=True):
    """How many trials a key has, and when the last one was recorded, in seconds since 1970; 0 if nobody noted it."""

    key: Key
    trials: int
    last: float = 0.0


class Generation(msgspec.Struct, frozen=True):
    """A decision that stood for its key from a moment on, in seconds since 1970."""

    number: int
    since: float
    decision: Decision


class Stats(msgspec.Struct, frozen=True):
    """How much a store keeps; `generations` are earlier decisions, `entries` what lies on shelves.

    `bytes` are those of the records, without what the engine adds or has not given back yet.
    """

    decisions: int = 0
    generations: int = 0
    trials: int = 0
    wants: int = 0
    entries: int = 0
    bytes: int = 0


class Bounds(msgspec.Struct, frozen=True):
    """What may stay: nothing older than `age` seconds, and no more than `bytes` in all; None: no such bound.

    Decisions that stand are kept, whatever their age, unless `decisions` says otherwise: they are small, and what a
    store is for.
    """

    age: float | None = None
    bytes: int | None = None
    decisions: bool = False
