"""The stores of a service: a primary store, and caches in front of it that may fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any

from tunewright.errors import StoreError, WireError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision
from tunewright.model.device import Device
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.ports.store import Store
from tunewright.stores import locations, serialization
from tunewright.stores.capabilities import KeepsLogs, KeepsNamespaces
from tunewright.stores.circuit_breaker import CircuitBreakerStore
from tunewright.stores.statistics import LogEntry

log = LazyLogger(__name__)

RETRY_SECONDS = 1.0
"""Longest time that the primary store is not called after a failure, so that a dead one does not block all threads."""

_EMPTY_SIGNATURE, _EMPTY_DEVICE = Signature(()), Device("", "", "")


def key_from_digest(digest: str) -> Key:
    """Returns a key of which only the digest is known, which is enough for look-ups."""
    key = Key("", "", _EMPTY_SIGNATURE, _EMPTY_DEVICE)
    key.__dict__["digest"] = digest
    return key


def by_digest(decisions: dict[Key, Decision]) -> dict[str, Decision]:
    """Returns decisions with complete keys, by digest; a record that belongs to another key is skipped."""
    complete: dict[str, Decision] = {}
    for key, decision in decisions.items():
        try:
            decoded = decision if decision.body is None else serialization.load_decision(decision.body)
        except WireError as error:
            log.warning("skipped a damaged record: %s; `store verify` lists all of them", error)
            continue
        if decoded.key.digest == key.digest:
            complete[key.digest] = decoded
    return complete


def open_primary(location: str) -> Any:
    """Opens the primary store of a service, as the service itself does: what it acknowledges survives a power cut."""
    return _require_primary(locations.open_authoritative(location))


def _require_primary(store: Store) -> Any:
    """Returns a durable store; raises StoreError if it cannot keep what a service needs."""
    if not isinstance(store, KeepsNamespaces) or not isinstance(store, KeepsLogs):
        raise StoreError(
            f"{type(store).__name__} cannot keep the tokens and the audit log of a service; "
            "use SQLite, PostgreSQL or Redis as the last store"
        )
    return locations.make_durable(store)


class CacheTier:
    """A cache in front of the primary store; after an outage it is read only once it has the changes it missed."""

    def __init__(self, store: Store) -> None:
        self._store: Any = CircuitBreakerStore(store)
        self._pending: dict[str, Decision] = {}
        self._lock = Lock()

    def read(self, digests: Sequence[str]) -> dict[str, Decision]:
        """Returns the cached decisions; none while the cache is unavailable."""
        try:
            if not self._write_pending():
                return {}
            return by_digest(self._store.get_many([key_from_digest(digest) for digest in digests]))
        except StoreError:
            return {}

    def fill(self, decisions: Sequence[Decision]) -> None:
        """Adds decisions of the primary store; existing ones stay, since they may be newer."""
        try:
            for decision in decisions if self._write_pending() else ():
                self._store.put(decision, replace=False)
        except StoreError as error:
            log.debug("a cache is unavailable: %s", error)

    def update(self, decision: Decision) -> None:
        """Stores a decision that was just published."""
        with self._lock:
            self._pending[decision.key.digest] = decision
        self._write_pending()

    def _write_pending(self) -> bool:
        """Writes the changes that the cache missed; returns whether it has all of them."""
        if not self._pending:
            return True
        with self._lock:
            try:
                for digest, decision in list(self._pending.items()):
                    self._store.put(decision)
                    del self._pending[digest]
            except StoreError:
                return False
            return True


class ServiceStorage:
    """The primary store of a service and its caches. Calls block, so they are made from threads."""

    def __init__(self, location: str) -> None:
        *caches, primary = locations.open_each(location)
        self.location = location
        self.caches = [CacheTier(store) for store in caches]
        self.primary: Any = CircuitBreakerStore(_require_primary(primary), max_pause=RETRY_SECONDS)

    def records(self, digests: Sequence[str]) -> dict[str, bytes]:
        """Returns existing records, from the first store that has them; raises StoreError if the primary fails."""
        decisions: dict[str, Decision] = {}
        missing = list(digests)
        for cache in self.caches:
            decisions |= cache.read(missing)
            missing = [digest for digest in missing if digest not in decisions]
        if missing:
            stored = by_digest(self.primary.get_many([key_from_digest(digest) for digest in missing]))
            for cache in self.caches:
                cache.fill(list(stored.values()))
            decisions |= stored
        return {digest: serialization.dump_decision(decision) for digest, decision in decisions.items()}

    def put_logged(self, decision: Decision, over: Decision | None, entry: LogEntry) -> bool:
        """Stores a decision in place of `over`, and a log entry, in the primary store; then the decision in the caches.

        Returns False, and changes nothing, if another decision is current or the log ends with another entry.
        """
        if not self.primary.put_logged(decision, over, entry):
            return False
        self.update_caches(decision)
        return True

    def update_caches(self, decision: Decision) -> None:
        """Tells the caches which decision is current for its key."""
        for cache in self.caches:
            cache.update(decision)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """Returns the decisions of `keys` in the primary store."""
        decisions: dict[Key, Decision] = self.primary.get_many(keys)
        return decisions

    def relatives(self, key: Key, limit: int = 1000) -> Iterator[Decision]:
        """Returns decisions of related keys in the primary store."""
        decisions: Iterator[Decision] = self.primary.relatives(key, limit)
        return decisions
