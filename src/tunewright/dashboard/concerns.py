"""Decisions that somebody should look at again, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tunewright.dashboard.views import Views
from tunewright.model.decision import Decision


class Concern(NamedTuple):
    """A decision, the kind of problem, and an explanation."""

    decision: Decision
    kind: str
    why: str


def find_concerns(views: Views) -> list[Concern]:
    """Returns quarantined, stale, interrupted and noisy decisions, in this order."""
    decisions = views.decisions()
    return [*_quarantined(views, decisions), *_stale(decisions), *_weak(decisions)]


def _quarantined(views: Views, decisions: Sequence[Decision]) -> Iterator[Concern]:
    for decision in decisions:
        if (entry := views.quarantined.get(decision.key.digest)) is not None:
            yield Concern(decision, "quarantined", f"{entry.reason} (since {entry.when or 'an unknown time'})")


def _stale(decisions: Sequence[Decision]) -> Iterator[Concern]:
    """Yields decisions for which there is a later one that differs only in source or toolchain."""
    latest: dict[tuple[object, ...], Decision] = {}
    for decision in sorted(decisions, key=_when):
        latest[_problem(decision)] = decision
    for decision in decisions:
        newer = latest[_problem(decision)]
        if newer is not decision and _when(newer) > _when(decision):
            fields = newer.key.differences(decision.key)
            changes = [f"{name} was {old[:40]}, is {new[:40]}" for name, (new, old) in fields.items()]
            yield Concern(decision, "stale", "; ".join(changes[:3]))


def _problem(decision: Decision) -> tuple[object, ...]:
    key = decision.key
    return key.kernel, key.signature.args, tuple(sorted(key.signature.dims.items())), str(key.device), str(key.mode)


def _when(decision: Decision) -> str:
    return decision.evidence.when if decision.evidence else ""


def _weak(decisions: Sequence[Decision]) -> Iterator[Concern]:
    for decision in decisions:
        evidence = decision.evidence
        if evidence is None:
            yield Concern(decision, "no evidence", "there is no record of how it was found")
        elif not evidence.complete:
            yield Concern(decision, "interrupted", f"its search was interrupted after {evidence.trials} trials")
        elif evidence.conditions is not None and (complaints := evidence.conditions.complaints()):
            yield Concern(decision, "noisy", f"while the finalists raced, {'; '.join(complaints)}")
