"""Nearby: the nearest answer to a key, by tiers; and, for a miss, what is stored near it and how that differs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import log

from tunewright.errors import StoreError
from tunewright.model.decision import Decision, Problem, Tier
from tunewright.model.device import Device
from tunewright.model.key import Key
from tunewright.ports.store import Store

Near = list[tuple[Decision, dict[str, tuple[str, str]]]]

SAME = (Tier.EXACT, Tier.ALIAS, Tier.BUCKET)
"""Tiers that answer the question itself; the others answer one that is like it."""


def answered(
    store: Store | Settled, problem: Problem, aliases: Mapping[str, str], *, like: bool = True
) -> Decision | None:
    """The nearest decision whose config is still in the space, with its tier and the key that it was made for.

    One read answers most calls. Only where it does not are the key's kin read, of which there are as many as shapes
    and devices of one architecture. Unless answers to questions that are `like` this one do, these are passed over.
    """
    exact = problem.exact or problem.key
    stored = store.get_many([exact] if exact == problem.key else [exact, problem.key])
    for key, tier in ((exact, Tier.EXACT), (problem.key, Tier.BUCKET)):
        if (decision := stored.get(key)) is not None and decision.config in problem.space:
            return _as(decision, tier)
    ranked = sorted(
        ((*_rank(exact, decision, problem, aliases), decision.key.digest), decision)
        for decision in store.relatives(exact)
        if decision.config in problem.space
    )
    for (number, _, _), decision in ranked:
        if like or TIERS[number] in SAME:
            return _as(decision, TIERS[number])
    return None


TIERS = tuple(Tier)


def _rank(key: Key, decision: Decision, problem: Problem, aliases: Mapping[str, str]) -> tuple[int, float]:
    """The tier of a decision as an answer to `key`, and how far its sizes are from those asked for."""
    there = decision.key
    if not _same(key.device, there.device, aliases):
        return TIERS.index(Tier.ARCHITECTURE), distance(key, there)
    if there.signature == key.signature:
        return TIERS.index(Tier.ALIAS), 0.0
    tier = Tier.BUCKET if there.signature == problem.key.signature else Tier.NEAREST
    return TIERS.index(tier), distance(key, there)


def _as(decision: Decision, tier: Tier) -> Decision:
    # What ranks have settled on may be no decision, but an answer with a tier of its own. And what is exact stays as
    # it was kept: another object would have to be read first.
    return decision if tier is Tier.EXACT or decision.tier is not Tier.EXACT else decision.having(tier=tier)


def _same(one: Device, other: Device, aliases: Mapping[str, str]) -> bool:
    """Whether two devices are one kind under two names."""
    if one == other:
        return True
    mine, theirs = (aliases.get(device.model, device.model) for device in (one, other))
    if mine == theirs:
        return True
    return plain_name(mine) == plain_name(theirs) and (one.features, one.limits) == (other.features, other.limits)


def plain_name(model: str) -> str:
    """A device's name without trade marks, makers, clock rates and spelling: what two drivers agree on."""
    text = re.sub(r"\((?:r|tm|c)\)|@.*$|\b\d+-core\b", " ", model.lower())
    words = re.split(r"[^a-z0-9.]+", text)
    return " ".join(word for word in words if word and word not in _MAKERS)


_MAKERS = frozenset(("nvidia", "amd", "intel", "inc", "corporation", "cpu", "gpu", "processor", "graphics"))


class Settled:
    """A store as a process sees it that tunes nothing: each kin is read once, and what was missing stays so.

    So a process that needs n keys makes one read for those it warmed up, and one for each kernel that misses.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._missing: set[Key] = set()
        self._kin: dict[str, list[Decision]] = {}

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """The decisions there are, without asking again for what is missing."""
        asked = [key for key in keys if key not in self._missing]
        found = self._store.get_many(asked) if asked else {}
        self._missing.update(key for key in asked if key not in found)
        return found

    def relatives(self, key: Key, most: int = 1000) -> Iterator[Decision]:
        """Decisions of the same kin."""
        if key.kin not in self._kin:
            self._kin[key.kin] = list(self._store.relatives(key, most))
        return iter(self._kin[key.kin])


def nearest(store: Store, key: Key, count: int = 3, most: int = 10_000) -> Near:
    """The stored decisions of the same kernel that differ from `key` in the fewest fields, and in which.

    Kin first, then at most so many others of the kernel: a store may have millions.
    """
    try:
        found = {decision.key: decision for decision in store.relatives(key)}
        found |= {decision.key: decision for decision in islice(store.decisions(key.kernel), most)}
    except StoreError:
        return []
    stored = sorted(
        (decision for decision in found.values() if decision.key != key),
        key=lambda decision: (*apart(key, decision.key), decision.key.digest),
    )
    return [(decision, key.differences(decision.key)) for decision in stored[:count]]


def apart(one: Key, other: Key) -> tuple[int, float]:
    """How far apart two keys are: in how many fields they differ, then by how much their sizes do."""
    return len(one.differences(other)), distance(one, other)


def missing(store: Store, key: Key) -> str:
    """What is missing, and how the nearest stored key differs."""
    said = f"{key.kernel}: nothing is decided for {key.signature}"
    if near := nearest(store, key, 1, most=200):
        _, differences = near[0]
        fields = ", ".join(f"{name} is {mine}, stored {theirs}" for name, (mine, theirs) in differences.items())
        said += f"; the nearest stored key differs: {fields}"
    return f'{said}. Tune it with mode="tune" or `tunewright tune`.'


def served(store: Store, problem: Problem, answer: Decision) -> str:
    """What is used for want of a decision, and why."""
    key = problem.exact or problem.key
    if answer.tier is Tier.DEFAULT:
        return f"{missing(store, key)} The default is used."
    fields = ", ".join(
        f"{name} is {mine}, not {theirs}" for name, (mine, theirs) in key.differences(answer.key).items()
    )
    return f"{key.kernel}: {answer.config} is used, decided for another key ({answer.tier}): {fields}"


def distance(one: Key, other: Key) -> float:
    """How far apart the named sizes of two keys are, as the sum of their ratios' logarithms."""
    both = one.signature.dims.keys() & other.signature.dims.keys()
    sizes = [(one.signature.dims[name] or 1, other.signature.dims[name] or 1) for name in both]
    return sum(abs(log(mine / theirs)) for mine, theirs in sizes)
