"""Events of a search, for listeners such as a progress bar or a dashboard."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tunewright.model.decision import Decision, Problem, Tier
from tunewright.model.key import Key
from tunewright.model.trial import Trial


class SearchStarted(msgspec.Struct, frozen=True):
    """A search begins; `resumed` is the number of trials known from earlier runs."""

    problem: Problem
    strategy: str
    trials: int | None
    seconds: float | None
    resumed: int = 0


class TrialFinished(msgspec.Struct, frozen=True):
    """A trial is finished and recorded; `replayed` if it comes from an earlier run."""

    trial: Trial
    replayed: bool = False


class FinalRaceStarted(msgspec.Struct, frozen=True):
    """The race of the finalists begins, or the race of the whole `program` with the old config and the new one."""

    finalists: int
    program: bool = False


class DecisionMade(msgspec.Struct, frozen=True):
    """A search ended with a decision; it is not `kept` if the machine was too noisy for the required resolution."""

    decision: Decision
    kept: bool = True


class LookupMissed(msgspec.Struct, frozen=True):
    """No exact decision is stored for a key, and the mode forbids tuning; `tier` is that of the answer."""

    key: Key
    tier: Tier


Event = SearchStarted | TrialFinished | FinalRaceStarted | DecisionMade | LookupMissed
Listener = Callable[[Event], None]
