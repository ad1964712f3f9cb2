"""Arriving: which entries of a bundle are raced again on this machine, in which order, and what is done about them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import msgspec

from tunewright.engine.budget import Budget
from tunewright.errors import TunewrightError
from tunewright.fronts.reracing import BRIEF, Arrival, Fate, Rerace
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.report.sampling import SURE, Statement, draw, statement
from tunewright.sharing.nearby import apart
from tunewright.sharing.transcripts import keep
from tunewright.stores.bundle.quarantine import Quarantine

PROBES = 5
"""How many entries of a kernel are looked at before it is given up: some of them may be of another version."""


class Sampled(msgspec.Struct, frozen=True):
    """What a sample showed: suspects, looked at first, those drawn at random, and what these say of the rest."""

    suspects: tuple[Rerace, ...]
    drawn: tuple[Rerace, ...]
    says: Statement


def relevant(arrival: Arrival, decisions: Iterable[Decision]) -> tuple[dict[Key, Decision], list[Rerace]]:
    """For each key of this machine the nearest entry, by that key; and the entries of kernels not found here.

    An entry for another device or toolchain is passed over where one is nearer: it answers nothing here.
    """
    kernels: dict[str, list[Decision]] = {}
    for decision in decisions:
        kernels.setdefault(decision.key.kernel, []).append(decision)
    nearest: dict[Key, Decision] = {}
    strangers: list[Rerace] = []
    for every in kernels.values():
        ground = _ground(arrival, every)
        if isinstance(ground, str):
            strangers += [Rerace(decision, Fate.UNRACED, ground) for decision in every]
            continue
        for decision in every:
            ours = msgspec.structs.replace(decision.key, device=ground.device, toolchain=ground.toolchain)
            standing = nearest.setdefault(ours, decision)
            if apart(ours, decision.key) < apart(ours, standing.key):
                nearest[ours] = decision
    return nearest, strangers


def _ground(arrival: Arrival, decisions: list[Decision]) -> Key | str:
    """A key of this machine for the kernel of these decisions, whose device and toolchain are ours; or why not."""
    said = ""
    for decision in decisions[:PROBES]:
        try:
            return arrival.track(decision).problem.key
        except TunewrightError as error:
            said = said or str(error)
    return said


def guarded(arrival: Arrival, entries: int) -> Arrival:
    """The arrival with a level at which any false alarm at all, in so many entries, is as rare as 1 in 20."""
    return replace(arrival, level=(1 - SURE) / max(1, entries))


def everything(arrival: Arrival, entries: Mapping[Key, Decision]) -> Iterator[Rerace]:
    """Each entry that was decided for another device or toolchain, raced here."""
    moved = [decision for ours, decision in entries.items() if ours != decision.key]
    return map(guarded(arrival, len(moved)).rerace, moved)


def sampled(
    arrival: Arrival,
    entries: Collection[Decision],
    budget: Budget,
    doubted: Collection[Key] = (),
    tell: Callable[[Rerace], None] = lambda result: None,
) -> Sampled:
    """Entries raced until the budget ends: those `doubted` first, with half of it, then a random sample of the others.

    The order is drawn before anything is measured, so that when the budget ends has no part in what is said.
    """
    listed, strict = list(entries), replace(guarded(arrival, len(entries)), terms=BRIEF)
    suspects, order = draw([float(one.key in doubted) for one in listed], arrival.session.settings.seed)
    half = Budget(budget.trials and max(1, budget.trials // 2), budget.seconds and budget.seconds / 2)
    looked = tuple(_until(half, (listed[i] for i in suspects), strict, tell))
    budget.spend(len(looked))
    drawn = tuple(_until(budget, (listed[i] for i in order), strict, tell))
    raced = [one for one in drawn if one.fate is not Fate.UNRACED]
    bad = sum(one.regressed for one in raced)
    # Whoever cannot be raced is no part of what is said; how many more there are of them is not known.
    return Sampled(looked, drawn, statement(bad, len(raced), len(order) - (len(drawn) - len(raced))))


def _until(
    budget: Budget, decisions: Iterable[Decision], arrival: Arrival, tell: Callable[[Rerace], None]
) -> Iterator[Rerace]:
    for decision in decisions:
        if not budget.grant():
            return
        budget.spend()
        result = arrival.rerace(decision)
        tell(result)
        yield result


def settle(arrival: Arrival, result: Rerace, quarantine: Quarantine | None) -> bool:
    """Act on a result: what was found for this machine is kept, what regressed is quarantined; whether anything was.

    Without a quarantine the source is an ordinary store: the new decision replaces the old, which stays in history.
    """
    found, before = result.found, result.decision
    is_new = found is not None and (result.regressed or found.key != before.key)
    if found is not None and is_new:
        arrival.session.store.put(found)
        if result.transcript is not None:
            keep(arrival.session.store, result.transcript)
    if result.regressed and quarantine is not None:
        quarantine.add(before.key.digest, before.config, result.reason)
    return is_new or result.regressed
