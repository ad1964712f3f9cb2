"""A store in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from threading import Lock

import msgspec

from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.sharing.records import Generation, Tally, Want


class MemoryStore:
    """Dictionaries; gone with the process."""

    def __init__(self) -> None:
        self._generations: dict[Key, list[Generation]] = {}
        self._trials: dict[Key, list[Trial]] = {}
        self._wants: dict[Key, Want] = {}
        self._leases: dict[str, tuple[str, float]] = {}
        self._shelves: dict[str, dict[str, tuple[bytes, float]]] = {}
        self._lock = Lock()

    @classmethod
    def at(cls, location: str) -> MemoryStore:
        """A new one, wherever that is."""
        return cls()

    def get(self, key: Key) -> Decision | None:
        """The decision for exactly this key."""
        found = self._generations.get(key)
        return found[-1].decision if found else None

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """The decisions there are for `keys`."""
        return {key: self._generations[key][-1].decision for key in keys if key in self._generations}

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Keep `decision`, and return the one that stands."""
        with self._lock:
            return self._put(decision, replace)

    def fill(self, decisions: Sequence[Decision]) -> None:
        """Take over what a farther store answered."""
        with self._lock:
            for decision in decisions:
                self._put(decision, True)

    def _put(self, decision: Decision, replace: bool) -> Decision:
        stood = self._generations.setdefault(decision.key, [])
        if not stood or (replace and stood[-1].decision != decision):
            stood.append(Generation(len(stood) + 1, time.time(), decision))
        return stood[-1].decision

    def relatives(self, key: Key, most: int = 1000) -> Iterator[Decision]:
        """Decisions of the same kin."""
        found = [decision for decision in self.decisions(key.kernel) if decision.key.kin == key.kin]
        return iter(found[:most])

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """All decisions, or those of one kernel."""
        standing = [generations[-1].decision for generations in list(self._generations.values())]
        return (decision for decision in standing if kernel in (None, decision.key.kernel))

    def history(self, key: Key) -> Sequence[Generation]:
        """What stood for a key, oldest first."""
        return list(self._generations.get(key, ()))

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Append trials to the journal of a key."""
        with self._lock:
            self._trials.setdefault(key, []).extend(trials)

    def trials(self, key: Key) -> Iterator[Trial]:
        """The journal of a key."""
        return iter(list(self._trials.get(key, ())))

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Keys that have a decision or a trial."""
        return (key for key in dict.fromkeys([*self._generations, *self._trials]) if kernel in (None, key.kernel))

    def tallies(self) -> Iterator[Tally]:
        """How many trials each key has."""
        return (Tally(key, len(trials), trials[-1].at) for key, trials in list(self._trials.items()) if trials)

    def want(self, wants: Sequence[Want]) -> None:
        """Add to what is known of each key."""
        with self._lock:
            for want in wants:
                calls, seconds = want.calls, want.seconds
                if (known := self._wants.get(want.key)) is not None:
                    calls, seconds = calls + known.calls, seconds + known.seconds
                self._wants[want.key] = msgspec.structs.replace(want, calls=calls, seconds=seconds)

    def wanted(self, kernel: str | None = None) -> Iterator[Want]:
        """What is still undecided, most seconds first."""
        open_ones = [w for k, w in self._wants.items() if k not in self._generations and kernel in (None, k.kernel)]
        return iter(sorted(open_ones, key=lambda want: (-want.seconds, want.key.digest)))

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Take the lease, or renew it."""
        now = time.monotonic()
        with self._lock:
            holder, until = self._leases.get(name, (owner, now))
            if holder != owner and until > now:
                return False
            self._leases[name] = (owner, now + seconds)
            return True

    def release(self, name: str, owner: str) -> None:
        """Give the lease back."""
        with self._lock:
            if self._leases.get(name, ("", 0.0))[0] == owner:
                del self._leases[name]

    def fetch(self, shelf: str, names: Sequence[str]) -> dict[str, bytes]:
        """What there is under `names` and has not expired."""
        row, now = self._shelves.get(shelf, {}), time.monotonic()
        found = {name: row[name] for name in names if name in row}
        return {name: body for name, (body, until) in found.items() if until > now}

    def keep(self, shelf: str, name: str, body: bytes, *, seconds: float | None = None, replace: bool = True) -> bytes:
        """Keep `body`, and return what stands."""
        now = time.monotonic()
        with self._lock:
            row = self._shelves.setdefault(shelf, {})
            stood = row.get(name)
            if not replace and stood is not None and stood[1] > now:
                return stood[0]
            row.pop(name, None)
            row[name] = body, now + (float("inf") if seconds is None else seconds)
            return body

    def entries(self, shelf: str) -> Iterator[tuple[str, bytes]]:
        """Everything on a shelf, oldest first."""
        now = time.monotonic()
        return iter([(n, body) for n, (body, until) in list(self._shelves.get(shelf, {}).items()) if until > now])

    def clear(self, shelf: str, *, most: int = 0) -> int:
        """Drop the oldest entries until at most `most` are left."""
        with self._lock:
            row = self._shelves.get(shelf, {})
            gone = list(row)[: max(0, len(row) - most)]
            for name in gone:
                del row[name]
            return len(gone)
