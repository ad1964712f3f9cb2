"""Consensus store: several processes that must answer alike, though each has its own store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tunewright.errors import StoreError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.ports.store import Store
from tunewright.stores.capabilities import SupportsLeases

log = LazyLogger(__name__)


class SharedStore(Store, SupportsLeases, Protocol):
    """A store that all processes see."""


class ConsensusStore:
    """Decisions of the shared store apply to all; those of the own store are published there first.

    So the first process that has a decision, stored or tuned, decides a key for all. Trials stay in the own store. If
    the shared store fails, a process uses its own decision and warns.
    """

    def __init__(self, shared: SharedStore, own: Store) -> None:
        self._shared, self._own = shared, own
        self._agreed: dict[Key, Decision] = {}

    def get(self, key: Key) -> Decision | None:
        """Returns the decision that applies to all."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """Returns the decisions that apply to all."""
        agreed = {key: self._agreed[key] for key in keys if key in self._agreed}
        missing = [key for key in keys if key not in agreed]
        if not missing:
            return agreed
        shared = self._shared.get_many(missing)
        own = self._own.get_many([key for key in missing if key not in shared])
        shared |= {key: self._shared.put(decision, replace=False) for key, decision in own.items()}
        self._agreed |= shared
        return agreed | shared

    def agree_on(self, key: Key, answer: Decision) -> Decision:
        """Returns the answer that all processes use for `key`: the first that any of them proposed, of any tier."""
        try:
            return self._shared.put(Decision(key, answer.config, answer.evidence, answer.tier), replace=False)
        except StoreError as error:
            log.warning("%s: other ranks may use another config: %s", key.kernel, error)
            return answer

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Stores `decision` in both stores and returns the one now stored."""
        try:
            decision = self._shared.put(decision, replace=replace)
        except StoreError as error:
            log.warning("%s: stored locally only, other ranks may decide otherwise: %s", decision.key.kernel, error)
        self._agreed[decision.key] = decision
        return self._own.put(decision)

    def relatives(self, key: Key, limit: int = 1000) -> Iterator[Decision]:
        """Yields up to `limit` decisions of related keys in both stores."""
        stores = (self._own, self._shared)
        decisions = {decision.key: decision for store in stores for decision in store.relatives(key, limit)}
        return iter(list(decisions.values())[:limit])

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """Yields all decisions; those of the shared store override the own ones."""
        stores = (self._own, self._shared)
        decisions = {decision.key: decision for store in stores for decision in store.decisions(kernel)}
        return iter(decisions.values())

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Appends trials to the own journal of a key."""
        self._own.record(key, trials)

    def trials(self, key: Key) -> Iterator[Trial]:
        """Yields the own journal of a key."""
        return self._own.trials(key)

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Yields the keys that have a decision or a trial."""
        return iter(dict.fromkeys([*self._own.keys(kernel), *self._shared.keys(kernel)]))

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Acquires or renews the lease among all processes."""
        return self._shared.claim(name, owner, seconds)

    def release(self, name: str, owner: str) -> None:
        """Releases the lease."""
        self._shared.release(name, owner)
