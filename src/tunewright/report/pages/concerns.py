"""Concerns: decisions that somebody should look at again, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tunewright.model.decision import Decision
from tunewright.report.pages.views import Views


class Concern(NamedTuple):
    """A decision, what is the matter with it in a word, and in a sentence."""

    decision: Decision
    kind: str
    why: str


def concerns(views: Views) -> list[Concern]:
    """What was found bad, what is stale, what was never finished, what was measured in a noise; in this order."""
    every = views.decisions()
    return [*_held(views, every), *_stale(every), *_weak(every)]


def _held(views: Views, every: Sequence[Decision]) -> Iterator[Concern]:
    for decision in every:
        if (held := views.held.get(decision.key.digest)) is not None:
            yield Concern(decision, "quarantined", f"{held.reason} (since {held.when or 'some time'})")


def _stale(every: Sequence[Decision]) -> Iterator[Concern]:
    """Those for which a later one stands that differs only in source or toolchain."""
    latest: dict[tuple[object, ...], Decision] = {}
    for decision in sorted(every, key=_when):
        latest[_asked(decision)] = decision
    for decision in every:
        newer = latest[_asked(decision)]
        if newer is not decision and _when(newer) > _when(decision):
            fields = newer.key.differences(decision.key)
            told = [f"{name} was {old[:40]}, is {new[:40]}" for name, (new, old) in fields.items()]
            yield Concern(decision, "stale", "; ".join(told[:3]))


def _asked(decision: Decision) -> tuple[object, ...]:
    key = decision.key
    return key.kernel, key.signature.args, tuple(sorted(key.signature.dims.items())), str(key.device), str(key.mode)


def _when(decision: Decision) -> str:
    return decision.evidence.when if decision.evidence else ""


def _weak(every: Sequence[Decision]) -> Iterator[Concern]:
    for decision in every:
        said = decision.evidence
        if said is None:
            yield Concern(decision, "no evidence", "nothing says how it was found")
        elif not said.complete:
            yield Concern(decision, "interrupted", f"its search was interrupted after {said.trials} trials")
        elif said.conditions is not None and (complaints := said.conditions.complaints()):
            yield Concern(decision, "noisy", f"while the finalists raced, {'; '.join(complaints)}")
