"""Store in the memory of this process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from threading import Lock

import msgspec

from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.stores.statistics import MissRecord, Revision, TrialCount


class MemoryStore:
    """Dictionaries; gone with the process."""

    def __init__(self) -> None:
        self._revisions: dict[Key, list[Revision]] = {}
        self._trials: dict[Key, list[Trial]] = {}
        self._misses: dict[Key, MissRecord] = {}
        self._leases: dict[str, tuple[str, float]] = {}
        self._namespaces: dict[str, dict[str, tuple[bytes, float]]] = {}
        self._lock = Lock()

    @classmethod
    def at(cls, location: str) -> MemoryStore:
        """Returns a new store, whatever the location."""
        return cls()

    def get(self, key: Key) -> Decision | None:
        """Returns the decision for exactly this key."""
        revisions = self._revisions.get(key)
        return revisions[-1].decision if revisions else None

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """Returns the decisions that exist for `keys`."""
        return {key: self._revisions[key][-1].decision for key in keys if key in self._revisions}

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Stores `decision` and returns the one now stored."""
        with self._lock:
            return self._put(decision, replace)

    def fill(self, decisions: Sequence[Decision]) -> None:
        """Copies decisions of a slower store."""
        with self._lock:
            for decision in decisions:
                self._put(decision, True)

    def _put(self, decision: Decision, replace: bool) -> Decision:
        revisions = self._revisions.setdefault(decision.key, [])
        if not revisions or (replace and revisions[-1].decision != decision):
            revisions.append(Revision(len(revisions) + 1, time.time(), decision))
        return revisions[-1].decision

    def relatives(self, key: Key, limit: int = 1000) -> Iterator[Decision]:
        """Yields up to `limit` decisions of related keys."""
        decisions = [
            decision for decision in self.decisions(key.kernel) if decision.key.related_digest == key.related_digest
        ]
        return iter(decisions[:limit])

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """Yields all decisions, or those of one kernel."""
        decisions = [revisions[-1].decision for revisions in list(self._revisions.values())]
        return (decision for decision in decisions if kernel in (None, decision.key.kernel))

    def history(self, key: Key) -> Sequence[Revision]:
        """Returns the revisions of a key, oldest first."""
        return list(self._revisions.get(key, ()))

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Appends trials to the journal of a key."""
        with self._lock:
            self._trials.setdefault(key, []).extend(trials)

    def trials(self, key: Key) -> Iterator[Trial]:
        """Yields the journal of a key."""
        return iter(list(self._trials.get(key, ())))

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Yields the keys that have a decision or a trial."""
        return (key for key in dict.fromkeys([*self._revisions, *self._trials]) if kernel in (None, key.kernel))

    def trial_counts(self) -> Iterator[TrialCount]:
        """Yields the number of trials of each key."""
        return (TrialCount(key, len(trials), trials[-1].at) for key, trials in list(self._trials.items()) if trials)

    def record_misses(self, misses: Sequence[MissRecord]) -> None:
        """Adds misses to the totals of their keys."""
        with self._lock:
            for miss in misses:
                calls, seconds = miss.calls, miss.seconds
                if (known := self._misses.get(miss.key)) is not None:
                    calls, seconds = calls + known.calls, seconds + known.seconds
                self._misses[miss.key] = msgspec.structs.replace(miss, calls=calls, seconds=seconds)

    def misses(self, kernel: str | None = None) -> Iterator[MissRecord]:
        """Yields the keys that are still undecided, most seconds first."""
        undecided = [
            miss for key, miss in self._misses.items() if key not in self._revisions and kernel in (None, key.kernel)
        ]
        return iter(sorted(undecided, key=lambda miss: (-miss.seconds, miss.key.digest)))

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Acquires or renews the lease."""
        now = time.monotonic()
        with self._lock:
            holder, until = self._leases.get(name, (owner, now))
            if holder != owner and until > now:
                return False
            self._leases[name] = (owner, now + seconds)
            return True

    def release(self, name: str, owner: str) -> None:
        """Releases the lease."""
        with self._lock:
            if self._leases.get(name, ("", 0.0))[0] == owner:
                del self._leases[name]

    def fetch(self, namespace: str, names: Sequence[str]) -> dict[str, bytes]:
        """Returns the entries under `names` that exist and have not expired."""
        entries, now = self._namespaces.get(namespace, {}), time.monotonic()
        found = {name: entries[name] for name in names if name in entries}
        return {name: body for name, (body, until) in found.items() if until > now}

    def keep(
        self, namespace: str, name: str, body: bytes, *, seconds: float | None = None, replace: bool = True
    ) -> bytes:
        """Stores `body` and returns what is now stored."""
        now = time.monotonic()
        with self._lock:
            entries = self._namespaces.setdefault(namespace, {})
            current = entries.get(name)
            if not replace and current is not None and current[1] > now:
                return current[0]
            entries.pop(name, None)
            entries[name] = body, now + (float("inf") if seconds is None else seconds)
            return body

    def entries(self, namespace: str) -> Iterator[tuple[str, bytes]]:
        """Yields all entries of a namespace, oldest first."""
        now, entries = time.monotonic(), list(self._namespaces.get(namespace, {}).items())
        return iter([(name, body) for name, (body, until) in entries if until > now])

    def clear(self, namespace: str, *, keep: int = 0) -> int:
        """Removes all but the newest `keep` entries and returns how many were removed."""
        with self._lock:
            entries = self._namespaces.get(namespace, {})
            oldest = list(entries)[: max(0, len(entries) - keep)]
            for name in oldest:
                del entries[name]
            return len(oldest)
