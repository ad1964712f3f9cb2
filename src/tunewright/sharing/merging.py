"""Merging: what is done to stores as a whole: adding one to another, dropping artefacts that nobody used for long."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tunewright.ports.store import Store
from tunewright.sharing import wire

UNTOUCHED = 30 * 86400.0
"""Seconds after which an artefact goes that nobody loaded, where nothing else is said."""


def merged(source: Store, into: Store, *, replace: bool = False) -> dict[str, int]:
    """Add the decisions and journals of one store to another: how many were new, and how many stood already.

    Trials that both have are added once, so that merging twice is merging once.
    """
    found = {"decisions": 0, "standing": 0, "trials": 0}
    for decision in source.decisions():
        standing = into.get(decision.key)
        if standing is not None and (standing == decision or not replace):
            found["standing"] += 1
            continue
        into.put(decision, replace=replace)
        found["decisions"] += 1
    for key in source.keys():  # noqa: SIM118 - a store is no mapping
        known = Counter(wire.dump_trial(trial) for trial in into.trials(key))
        fresh = []
        for trial in source.trials(key):
            body = wire.dump_trial(trial)
            if known[body]:
                known[body] -= 1
            else:
                fresh.append(trial)
        if fresh:
            into.record(key, fresh)
            found["trials"] += len(fresh)
    return found


def collected(cache: Path, age: float | None) -> tuple[int, int]:
    """Drop built artefacts that were not loaded for that long; how many, and their bytes. A later launch rebuilds."""
    before = time.time() - (UNTOUCHED if age is None else age)
    count = freed = 0
    for path in (cache / "artifacts").rglob("*"):
        with suppress(OSError):
            about = path.stat()
            if path.is_file() and max(about.st_mtime, about.st_atime) < before:
                path.unlink()
                count, freed = count + 1, freed + about.st_size
    return count, freed
