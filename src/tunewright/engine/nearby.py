"""Nearby: what is stored near a key that misses, and how it differs."""

from __future__ import annotations

from math import log

from tunewright.errors import StoreError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.ports.store import Store

Near = list[tuple[Decision, dict[str, tuple[str, str]]]]


def nearest(store: Store, key: Key, count: int = 3) -> Near:
    """The stored decisions of the same kernel that differ from `key` in the fewest fields, and in which."""
    try:
        stored = [decision for decision in store.decisions(key.kernel) if decision.key != key]
    except StoreError:
        return []
    stored.sort(key=lambda decision: (*apart(key, decision.key), decision.key.digest))
    return [(decision, key.differences(decision.key)) for decision in stored[:count]]


def apart(one: Key, other: Key) -> tuple[int, float]:
    """How far apart two keys are: in how many fields they differ, then by how much their sizes do."""
    return len(one.differences(other)), _distance(one, other)


def missing(store: Store, key: Key) -> str:
    """What is missing, and how the nearest stored key differs."""
    said = f"{key.kernel}: nothing is decided for {key.signature}"
    if near := nearest(store, key, 1):
        _, differences = near[0]
        fields = ", ".join(f"{name} is {mine}, stored {theirs}" for name, (mine, theirs) in differences.items())
        said += f"; the nearest stored key differs: {fields}"
    return f'{said}. Tune it with mode="tune" or `tunewright tune`.'


def _distance(one: Key, other: Key) -> float:
    """How far apart the named sizes of two keys are, as the sum of their ratios' logarithms."""
    both = one.signature.dims.keys() & other.signature.dims.keys()
    sizes = [(one.signature.dims[name] or 1, other.signature.dims[name] or 1) for name in both]
    return sum(abs(log(mine / theirs)) for mine, theirs in sizes)
