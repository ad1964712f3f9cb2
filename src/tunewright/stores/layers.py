"""Several stores as one, nearest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tunewright.errors import StoreError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.ports.store import Store
from tunewright.remarks import Remarks

log = Remarks(__name__)


class Layers:
    """Reads stop at the first hit and fill the nearer layers. The farthest is the record of truth.

    Journals live in the farthest layer that takes them. A layer that fails is logged and skipped: a dead remote is
    a miss, not a crash.
    """

    def __init__(self, *stores: Store) -> None:
        self._stores = stores
        self._said: set[int] = set()

    def get(self, key: Key) -> Decision | None:
        """The nearest decision for exactly this key."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """The decisions there are for `keys`, each layer asked once for what the nearer ones lack."""
        found: dict[Key, Decision] = {}
        for depth, store in enumerate(self._stores):
            missing = [key for key in keys if key not in found]
            if not missing:
                break
            fresh = self._try(store, "get_many", missing) or {}
            for decision in fresh.values():
                for nearer in self._stores[:depth]:
                    self._try(nearer, "put", decision)
            found |= fresh
        return found

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Keep `decision` in every layer, farthest first, since what stands there stands for all."""
        kept = False
        for store in reversed(self._stores):
            standing = self._try(store, "put", decision, replace=replace or kept)
            if standing is not None:
                decision, kept = standing, True
        if not kept:
            raise StoreError(f"no layer kept the decision for {decision.key.kernel}; the log says why of each")
        return decision

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """All decisions, each key once, from the nearest layer that has it."""
        seen: set[Key] = set()
        for store in self._stores:
            for decision in self._try(store, "decisions", kernel) or ():
                if decision.key not in seen:
                    seen.add(decision.key)
                    yield decision

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Append trials to the journal in the farthest layer that takes them."""
        for store in reversed(self._stores):
            try:
                return store.record(key, trials)
            except StoreError as error:
                self._skipped(store, error)
        raise StoreError(f"no layer kept {len(trials)} trials of {key.kernel}; the log says why of each")

    def trials(self, key: Key) -> Iterator[Trial]:
        """The journal of a key, from every layer that has a part of it."""
        for store in reversed(self._stores):
            yield from self._try(store, "trials", key) or ()

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Keys that have a decision or a trial in any layer."""
        seen: dict[Key, None] = {}
        for store in self._stores:
            seen |= dict.fromkeys(self._try(store, "keys", kernel) or ())
        return iter(seen)

    def _try(self, store: Store, verb: str, *args: Any, **options: Any) -> Any:
        """What `store` answers; None if it cannot. An answer in parts is taken whole, so that it can fail here."""
        try:
            answer = getattr(store, verb)(*args, **options)
            return list(answer) if isinstance(answer, Iterator) else answer
        except StoreError as error:
            self._skipped(store, error)
            return None

    def _skipped(self, store: Store, error: StoreError) -> None:
        """Say that a store fails: aloud once, then for those who listen closely."""
        say = log.debug if id(store) in self._said else log.warning
        self._said.add(id(store))
        say("%s is skipped: %s", type(store).__name__, error)
