"""Look-ups by tiers: the nearest stored answer to a key; and, for a miss, how the nearest stored keys differ."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from math import log

from tunewright.errors import StoreError
from tunewright.model.decision import Decision, Problem, Tier
from tunewright.model.device import Device
from tunewright.model.key import Key
from tunewright.ports.store import Store
from tunewright.stores.records import RecordReader

NearestDecisions = list[tuple[Decision, dict[str, tuple[str, str]]]]
"""Decisions with the fields in which their keys differ from the one that was looked up."""

TIERS = tuple(Tier)

SAME_QUESTION_TIERS = (Tier.EXACT, Tier.ALIAS, Tier.BUCKET)
"""Tiers that answer the question itself; the others answer a similar one."""

_reader = RecordReader("the store")

_VENDOR_WORDS = frozenset(("nvidia", "amd", "intel", "inc", "corporation", "cpu", "gpu", "processor", "graphics"))


def find_decision(
    store: Store | CachedLookups, problem: Problem, aliases: Mapping[str, str], *, allow_similar: bool = True
) -> Decision | None:
    """Returns the nearest decision whose config is still in the space, with its tier and the key it was made for.

    One read answers most calls. Only after a miss are related keys read: as many as there are shapes and devices of one
    architecture. Answers to similar questions are skipped unless `allow_similar`.
    """
    exact = problem.exact or problem.key
    stored = _reader.readable(store.get_many([exact] if exact == problem.key else [exact, problem.key]))
    for key, tier in ((exact, Tier.EXACT), (problem.key, Tier.BUCKET)):
        if (decision := stored.get(key)) is not None and decision.config in problem.space:
            return _with_tier(decision, tier)
    ranked = sorted(
        ((*_rank(exact, answer, problem, aliases), answer.key.digest), answer)
        for decision in store.relatives(exact)
        if _reader.is_readable(decision)
        and (answer := _by_rule(decision, exact)) is not None
        and answer.config in problem.space
    )
    for (number, _, _), decision in ranked:
        if allow_similar or TIERS[number] in SAME_QUESTION_TIERS:
            return _with_tier(decision, TIERS[number])
    return None


def _by_rule(decision: Decision, key: Key) -> Decision | None:
    """Returns a decision as it is, and a rule as what it says about a key; None if it does not serve it.

    Rules choose by size, so they do not serve keys whose results must not depend on one.
    """
    if decision.evidence is None or decision.evidence.rule is None:
        return decision
    serves = decision.key.device == key.device and "invariant" not in key.mode
    config = decision.evidence.rule.config(key.signature.dims) if serves else None
    return None if config is None else decision.replace(config=config, tier=Tier.RULE)


def readable_decision(store: Store, key: Key) -> Decision | None:
    """Returns the decision for exactly this key; None if its record is malformed."""
    decision = store.get(key)
    return decision if decision is not None and _reader.is_readable(decision) else None


def _rank(key: Key, decision: Decision, problem: Problem, aliases: Mapping[str, str]) -> tuple[int, float]:
    """Returns the tier of a decision as an answer to `key`, and the distance of its sizes."""
    stored = decision.key
    if not _is_same_device(key.device, stored.device, aliases):
        return TIERS.index(Tier.ARCHITECTURE), size_distance(key, stored, without=_invariant(key))
    if decision.tier is Tier.RULE:
        return TIERS.index(Tier.RULE), 0.0
    if stored.signature == key.signature:
        return TIERS.index(Tier.ALIAS), 0.0
    tier = Tier.BUCKET if stored.signature == problem.key.signature else Tier.NEAREST
    return TIERS.index(tier), _serving_distance(key, stored)


def _serving_distance(key: Key, stored: Key) -> float:
    """Returns the distance by which a decision is chosen.

    Where results must not depend on a dimension, neither may the choice: all its sizes get what was decided for some
    of them, or else the same decision. Decisions for sizes of it are negative: they come before others.
    """
    names = _invariant(key)
    others = size_distance(key, stored, without=names)
    return others if others or not names else -1 / (1 + size_distance(key, stored))


def _invariant(key: Key) -> list[str]:
    """Returns the dimensions on which results must not depend."""
    text = key.mode.get("invariant", "")
    return text.split(", ") if text else []


def _with_tier(decision: Decision, tier: Tier) -> Decision:
    # Ranks may have agreed on an answer that has a tier of its own. And an exact answer is returned unchanged: a copy
    # would have to be decoded.
    return decision if tier is Tier.EXACT or decision.tier is not Tier.EXACT else decision.replace(tier=tier)


def _is_same_device(left: Device, right: Device, aliases: Mapping[str, str]) -> bool:
    """Returns whether two devices are the same model under two names, or one that offers the same.

    A hypervisor may hide instruction sets of a model; only a declared alias says that this does not matter.
    """
    if left == right:
        return True
    left_model, right_model = (aliases.get(device.model, device.model) for device in (left, right))
    if left_model == right_model and not {left.model, right.model}.isdisjoint(aliases):
        return True
    if normalize_device_name(left_model) != normalize_device_name(right_model):
        return False
    return (left.features, left.limits) == (right.features, right.limits)


def normalize_device_name(model: str) -> str:
    """Returns the name of a device without trademarks, vendors, clock rates and punctuation."""
    text = re.sub(r"\((?:r|tm|c)\)|@.*$|\b\d+-core\b", " ", model.lower())
    words = re.split(r"[^a-z0-9.]+", text)
    return " ".join(word for word in words if word and word not in _VENDOR_WORDS)


class CachedLookups:
    """A store as seen by a process that tunes nothing: related keys are read once, and misses are remembered.

    So a process makes one read for all keys that it warmed up, and one for each kernel that misses.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._missing: set[Key] = set()
        self._related: dict[str, list[Decision]] = {}

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """Returns the decisions that exist, without asking again for known misses."""
        candidates = [key for key in keys if key not in self._missing]
        decisions = self._store.get_many(candidates) if candidates else {}
        self._missing.update(key for key in candidates if key not in decisions)
        return decisions

    def relatives(self, key: Key, limit: int = 1000) -> Iterator[Decision]:
        """Yields up to `limit` decisions of related keys."""
        if key.related_digest not in self._related:
            self._related[key.related_digest] = list(self._store.relatives(key, limit))
        return iter(self._related[key.related_digest])


def _is_rule(decision: Decision) -> bool:
    """Whether a decision is for many shapes, so that its key is near to none."""
    return decision.evidence is not None and decision.evidence.rule is not None


def find_nearest(
    store: Store,
    key: Key,
    count: int = 3,
    limit: int = 10_000,
    accepts: Callable[[Decision], bool] = lambda decision: True,
) -> NearestDecisions:
    """Returns the stored decisions of the same kernel whose keys differ in the fewest fields, and those fields.

    Reads related keys first, then at most `limit` others of the kernel: a store may have millions. The nearest of those
    that are accepted count.
    """
    try:
        decisions = {decision.key: decision for decision in store.relatives(key)}
        decisions |= {decision.key: decision for decision in islice(store.decisions(key.kernel), limit)}
    except StoreError:
        return []
    nearest = sorted(
        (one for one in decisions.values() if one.key != key and not _is_rule(one) and accepts(one)),
        key=lambda decision: (*key_distance(key, decision.key), decision.key.digest),
    )
    return [(decision, key.differences(decision.key)) for decision in nearest[:count]]


def key_distance(left: Key, right: Key) -> tuple[int, float]:
    """Returns in how many fields two keys differ, then the distance of their sizes."""
    return len(left.differences(right)), size_distance(left, right)


def describe_miss(store: Store, key: Key) -> str:
    """Returns a sentence about a missing decision, and how the nearest stored key differs."""
    message = f"{key.kernel}: nothing is decided for {key.signature}"
    if nearest := find_nearest(store, key, 1, limit=200):
        _, differences = nearest[0]
        fields = ", ".join(f"{name} is {mine}, stored {theirs}" for name, (mine, theirs) in differences.items())
        message += f"; the nearest stored key differs: {fields}"
    return f'{message}. Tune it with mode="tune" or `tunewright tune`.'


def describe_fallback(store: Store, problem: Problem, answer: Decision) -> str:
    """Returns a sentence about what is used instead of a missing decision, and why."""
    key = problem.exact or problem.key
    if answer.tier is Tier.DEFAULT:
        return f"{describe_miss(store, key)} The default is used."
    if answer.tier is Tier.RULE:
        return f"{key.kernel}: using {answer.config} for {key.signature.dims}: a rule chose it, verified on this bucket"
    fields = ", ".join(
        f"{name} is {mine}, not {theirs}" for name, (mine, theirs) in key.differences(answer.key).items()
    )
    return f"{key.kernel}: using {answer.config}, which was decided for another key ({answer.tier}): {fields}"


def size_distance(left: Key, right: Key, *, without: Collection[str] = ()) -> float:
    """Returns the distance of the named sizes of two keys: the sum of the logarithms of their ratios."""
    common = (left.signature.dims.keys() & right.signature.dims.keys()) - set(without)
    sizes = [(left.signature.dims[name] or 1, right.signature.dims[name] or 1) for name in common]
    return sum(abs(log(mine / theirs)) for mine, theirs in sizes)
