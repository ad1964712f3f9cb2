"""Event: what happened, for whoever listens: the journal, a progress bar, a dashboard."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tunewright.model.decision import Decision, Problem, Tier
from tunewright.model.key import Key
from tunewright.model.trial import Trial


class Started(msgspec.Struct, frozen=True):
    """A search begins; `resumed` trials are known from an earlier run."""

    problem: Problem
    strategy: str
    trials: int | None
    seconds: float | None
    resumed: int = 0


class Tried(msgspec.Struct, frozen=True):
    """A config was tried, and the trial is safely recorded; `replayed` if an earlier run had done it."""

    trial: Trial
    replayed: bool = False


class Final(msgspec.Struct, frozen=True):
    """The search is over, and its finalists are about to be raced, or the whole program with what won and without."""

    finalists: int
    program: bool = False


class Decided(msgspec.Struct, frozen=True):
    """A search ended in a decision; it is not `kept` if the machine was too noisy for what the settings want."""

    decision: Decision
    kept: bool = True


class Missed(msgspec.Struct, frozen=True):
    """Nothing exact is stored for a key, and the mode forbids tuning; the answer is of this tier."""

    key: Key
    tier: Tier


Event = Started | Tried | Final | Decided | Missed
Listener = Callable[[Event], None]
