"""Merges one store into another."""

from __future__ import annotations

from collections import Counter

from tunewright.ports.store import Store
from tunewright.stores import serialization


def merge_stores(source: Store, into: Store, *, replace: bool = False) -> dict[str, int]:
    """Adds the decisions and journals of one store to another and returns how many were new or already there.

    Trials that both have are added once, so that merging twice changes nothing.
    """
    counts = {"decisions": 0, "standing": 0, "trials": 0}
    for decision in source.decisions():
        current = into.get(decision.key)
        if current is not None and (current == decision or not replace):
            counts["standing"] += 1
            continue
        into.put(decision, replace=replace)
        counts["decisions"] += 1
    for key in source.keys():  # noqa: SIM118 - a store is no mapping
        known = Counter(serialization.dump_trial(trial) for trial in into.trials(key))
        new_trials = []
        for trial in source.trials(key):
            body = serialization.dump_trial(trial)
            if known[body]:
                known[body] -= 1
            else:
                new_trials.append(trial)
        if new_trials:
            into.record(key, new_trials)
            counts["trials"] += len(new_trials)
    return counts
