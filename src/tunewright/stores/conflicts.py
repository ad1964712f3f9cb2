"""Conflict resolution: which of two decisions for one key has the better evidence, and why."""

from __future__ import annotations

from tunewright.model.decision import Decision
from tunewright.stores import serialization


def resolve_conflict(left: Decision, right: Decision) -> tuple[Decision, str]:
    """Returns the decision with the better evidence and the reason; the order of the arguments does not matter."""
    first, second = sorted((left, right), key=serialization.dump_decision)
    if first.config == second.config:
        newer = max(first, second, key=_when)
        return newer, "both chose the same config; the newer evidence is kept"
    for reason, criterion in (
        ("the other has no evidence", lambda decision: decision.evidence is not None),
        ("the other search was interrupted", lambda decision: decision.evidence and decision.evidence.complete),
    ):
        if bool(criterion(first)) != bool(criterion(second)):
            return (first if criterion(first) else second), reason
    gains = [decision.evidence and decision.evidence.over_default for decision in (first, second)]
    if gains[0] and gains[1] and gains[0].low > gains[1].high:
        return first, f"{gains[0].ratio:.2f}x the default against {gains[1].ratio:.2f}x; the intervals do not overlap"
    if gains[0] and gains[1] and gains[1].low > gains[0].high:
        return second, f"{gains[1].ratio:.2f}x the default against {gains[0].ratio:.2f}x; the intervals do not overlap"
    if _when(first) != _when(second):
        return max(first, second, key=_when), "no significant difference in gain; the newer one is kept"
    return first, "no difference in evidence; the first in canonical order is kept"


def _when(decision: Decision) -> str:
    return decision.evidence.when if decision.evidence else ""
