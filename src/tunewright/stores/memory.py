"""Store in the memory of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from threading import Lock

import msgspec

from tunewright.errors import WireError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.stores import serialization
from tunewright.stores.capabilities import CHANGING, FillToken
from tunewright.stores.statistics import LogEntry, MissRecord, Revision, TrialCount


class MemoryStore:
    """Dictionaries; gone with the process.

    As a cache in front of other stores it keeps at most `max_decisions`, and drops the oldest. `clock` returns seconds.
    """

    is_private = True
    """No other process reads it."""

    def __init__(self, max_decisions: int | None = None, clock: Callable[[], float] | None = None) -> None:
        self._max_decisions, self._clock = max_decisions, clock or time.monotonic
        self._forgotten: set[Key] = set()
        self._changing: dict[str, tuple[object, float]] = {}
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
        return revisions[-1].decision if revisions and key not in self._forgotten else None

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """Returns the decisions that exist for `keys`."""
        return {key: decision for key in keys if (decision := self.get(key)) is not None}

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Stores `decision` and returns the one now stored."""
        with self._lock:
            return self._put(decision, replace)

    def fill_token(self, keys: Sequence[Key]) -> FillToken:
        """Returns the versions of the decisions that are here now."""
        with self._lock:
            versions = {key.digest: self._version(key) for key in keys}
            return {digest: version for digest, version in versions.items() if version is not None}

    def forget(self, keys: Sequence[Key], seconds: float) -> FillToken:
        """Removes decisions that are about to change."""
        token: FillToken = {}
        with self._lock:
            now = self._clock()
            self._changing = {digest: mark for digest, mark in self._changing.items() if mark[1] > now}
            for key in keys:
                self._forgotten.add(key)
                # If another change is under way, nobody knows which of the two comes last, so neither may fill.
                mark = CHANGING if key.digest in self._changing else object()
                self._changing[key.digest] = (mark, now + seconds)
                token[key.digest] = object() if mark is CHANGING else mark
        return token

    def fill(self, decisions: Sequence[Decision], token: FillToken | None = None) -> int:
        """Copies decisions of a slower store."""
        filled = 0
        with self._lock:
            for decision in decisions:
                digest = decision.key.digest
                version = self._version(decision.key)
                mark = self._changing.get(digest, (None, 0.0))[0] if version is CHANGING else version
                if token is None or (token.get(digest) is mark and mark is not CHANGING):
                    self._changing.pop(digest, None)
                    self._put(decision, True)
                    filled += 1
        return filled

    def _version(self, key: Key) -> object:
        """Returns the version of a decision: its revision, None if there is none, CHANGING while it is changed."""
        if key.digest in self._changing and self._changing[key.digest][1] > self._clock():
            return CHANGING
        revisions = self._revisions.get(key)
        return revisions[-1] if revisions and key not in self._forgotten else None

    def _put(self, decision: Decision, replace: bool) -> Decision:
        revisions = self._revisions.setdefault(decision.key, [])
        if decision.key in self._forgotten:
            self._forgotten.discard(decision.key)
            replace = True
        if not revisions or _may_replace(revisions[-1].decision, decision, replace):
            revisions.append(Revision(len(revisions) + 1, time.time(), decision))
        if self._max_decisions is not None and len(self._revisions) > self._max_decisions:
            oldest = next(iter(self._revisions))
            self._forgotten.discard(oldest)
            del self._revisions[oldest]
        return revisions[-1].decision

    def relatives(self, key: Key, limit: int = 1000) -> Iterator[Decision]:
        """Yields up to `limit` decisions of related keys."""
        decisions = [
            decision for decision in self.decisions(key.kernel) if decision.key.related_digest == key.related_digest
        ]
        return iter(decisions[:limit])

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """Yields all decisions, or those of one kernel."""
        current = list(self._revisions.items())
        decisions = [revisions[-1].decision for key, revisions in current if key not in self._forgotten]
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
        now = self._clock()
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
        entries, now = self._namespaces.get(namespace, {}), self._clock()
        found = {name: entries[name] for name in names if name in entries}
        return {name: body for name, (body, until) in found.items() if until > now}

    def keep(
        self, namespace: str, name: str, body: bytes, *, seconds: float | None = None, replace: bool = True
    ) -> bytes:
        """Stores `body` and returns what is now stored."""
        now = self._clock()
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
        now, entries = self._clock(), list(self._namespaces.get(namespace, {}).items())
        return iter([(name, body) for name, (body, until) in entries if until > now])

    def clear(self, namespace: str, *, keep: int = 0) -> int:
        """Removes all but the newest `keep` entries and returns how many were removed."""
        with self._lock:
            entries = self._namespaces.get(namespace, {})
            oldest = list(entries)[: max(0, len(entries) - keep)]
            for name in oldest:
                del entries[name]
            return len(oldest)

    def put_logged(self, decision: Decision, over: Decision | None, entry: LogEntry) -> bool:
        """Stores `decision` in place of `over` and appends `entry`, both or neither."""
        with self._lock:
            entries = self._namespaces.setdefault(entry.log, {})
            if self.get(decision.key) != over or next(reversed(entries), "") != entry.after or entry.name in entries:
                return False
            entries[entry.name] = entry.body, float("inf")
            self._put(decision, True)
            return True

    def last_entry(self, log: str) -> tuple[str, bytes] | None:
        """Returns the last entry of a log."""
        entries = self._namespaces.get(log, {})
        return next(((name, entries[name][0]) for name in reversed(entries)), None)

    def drop_entries(self, namespace: str, names: Sequence[str]) -> None:
        """Removes the entries under `names`."""
        with self._lock:
            for name in names:
                self._namespaces.get(namespace, {}).pop(name, None)


def _may_replace(current: Decision, decision: Decision, replace: bool) -> bool:
    """Whether `decision` takes the place of `current`; a record of another store that cannot be decoded is replaced."""
    try:
        signed = decision.body is not None and decision.body.startswith(serialization.AUTHOR_FIRST)
        differs = current != decision or (signed and current.body != decision.body)
        return differs if replace else current.config is None
    except WireError:
        return True
