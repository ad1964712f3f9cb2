"""A store in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock

from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial


class MemoryStore:
    """Dictionaries; gone with the process."""

    def __init__(self) -> None:
        self._decisions: dict[Key, Decision] = {}
        self._trials: dict[Key, list[Trial]] = {}
        self._lock = Lock()

    def get(self, key: Key) -> Decision | None:
        """The decision for exactly this key."""
        return self._decisions.get(key)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """The decisions there are for `keys`."""
        return {key: self._decisions[key] for key in keys if key in self._decisions}

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Keep `decision`, and return the one that stands."""
        with self._lock:
            if replace:
                self._decisions[decision.key] = decision
                return decision
            return self._decisions.setdefault(decision.key, decision)

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """All decisions, or those of one kernel."""
        return (d for d in list(self._decisions.values()) if kernel in (None, d.key.kernel))

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Append trials to the journal of a key."""
        with self._lock:
            self._trials.setdefault(key, []).extend(trials)

    def trials(self, key: Key) -> Iterator[Trial]:
        """The journal of a key."""
        return iter(list(self._trials.get(key, ())))

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Keys that have a decision or a trial."""
        return (key for key in dict.fromkeys([*self._decisions, *self._trials]) if kernel in (None, key.kernel))
