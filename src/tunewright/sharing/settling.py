"""Settling: two decisions for one key, told apart by their evidence; with the reason, in words."""

from __future__ import annotations

from tunewright.model.decision import Decision
from tunewright.sharing import wire


def settled(one: Decision, other: Decision) -> tuple[Decision, str]:
    """The decision with the better evidence, and why; the same whichever is named first."""
    first, second = sorted((one, other), key=wire.dump_decision)
    if first.config == second.config:
        newer = max(first, second, key=_when)
        return newer, "both chose the same; the newer evidence is kept"
    for reason, measure in (
        ("the other has no evidence", lambda decision: decision.evidence is not None),
        ("the other search was interrupted", lambda decision: decision.evidence and decision.evidence.complete),
    ):
        if bool(measure(first)) != bool(measure(second)):
            return (first if measure(first) else second), reason
    gains = [decision.evidence and decision.evidence.over_default for decision in (first, second)]
    if gains[0] and gains[1] and gains[0].low > gains[1].high:
        return first, f"{gains[0].ratio:.2f}x the default against {gains[1].ratio:.2f}x, beyond doubt"
    if gains[0] and gains[1] and gains[1].low > gains[0].high:
        return second, f"{gains[1].ratio:.2f}x the default against {gains[0].ratio:.2f}x, beyond doubt"
    if _when(first) != _when(second):
        return max(first, second, key=_when), "their gains cannot be told apart; the newer one is kept"
    return first, "nothing tells them apart; the first in canonical order is kept"


def _when(decision: Decision) -> str:
    return decision.evidence.when if decision.evidence else ""
