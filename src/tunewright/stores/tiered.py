"""Tiered store: several stores as one, nearest first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tunewright.errors import StoreError, WriteRefused
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.ports.store import Store
from tunewright.stores.artifacts import ArtifactLabel
from tunewright.stores.capabilities import (
    FillToken,
    HasArtifacts,
    HasPendingWrites,
    HasRefusedWrites,
    KeepsNamespaces,
    KeepsRevisions,
    RecordsMisses,
    SupportsFill,
    SupportsLeases,
    SupportsMaintenance,
    SupportsSync,
)
from tunewright.stores.memory import MemoryStore
from tunewright.stores.records import RecordReader
from tunewright.stores.statistics import MissRecord, RefusedWrite, RetentionLimits, Revision, StoreStats

log = LazyLogger(__name__)

CHANGE_SECONDS = 60.0
"""How long a cache remembers that a decision is being changed, if it is not told that the change is done."""

FILL_SECONDS = 30.0
"""How old an answer may be when it is copied to a cache: younger than the oldest change that is remembered."""


class TieredStore:
    """Reads stop at the first hit and fill the nearer tiers. The farthest tier is the record of truth.

    Journals are kept in the farthest tier that accepts them, and so are leases, misses, revisions and namespaces. A
    tier that fails is logged and skipped: a dead remote is a miss, not a crash. If no tier can grant a lease, everyone
    gets it: the first published decision wins anyway.

    Nearer tiers never hold what the farthest has replaced: a change is announced to them first, and an answer that was
    read before it cannot be filled after it (`SupportsFill`). `clock` returns seconds.
    """

    def __init__(self, *stores: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._stores, self._clock = stores, clock
        self._reader = RecordReader("a tier")
        self._warned: set[int] = set()

    def get(self, key: Key) -> Decision | None:
        """Returns the decision for exactly this key, from the nearest tier that has it."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """Returns the decisions that exist for `keys`; each tier is read once, for what the nearer ones lack."""
        decisions: dict[Key, Decision] = {}
        tokens: list[FillToken | None] = []
        began = self._clock()
        for store in self._stores:
            missing = [key for key in keys if key not in decisions]
            if not missing:
                break
            found = self._try(store, "get_many", missing) or {}
            batch = self._reader.readable(found)
            if batch and self._clock() - began < FILL_SECONDS:
                for nearer, token in zip(self._stores, tokens, strict=False):
                    self._fill(nearer, list(batch.values()), token)
            decisions |= batch
            if store is not self._stores[-1] and len(batch) < len(missing):
                tokens.append(self._token(store, missing, [key for key in found if key not in batch]))
        return decisions

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Stores `decision` in the farthest tier and then in the others, and returns the one that is current.

        A decision is replaced only if the nearer tiers can be told before: otherwise they would return the old one.
        The first decision for a key needs no such thing: a cache that cannot be reached does not hold it up.
        """
        key, caches = decision.key, [store for store in self._stores[:-1] if isinstance(store, SupportsFill)]
        tokens: list[FillToken | None]
        if replace:
            try:
                tokens = [cache.forget([key], CHANGE_SECONDS) for cache in caches]
            except StoreError as error:
                return self._put_untold(decision, error)
        else:
            tokens = [self._token(cache, [key], []) for cache in caches]
        try:
            current = self._stores[-1].put(decision, replace=replace)
        except WriteRefused:
            raise
        except StoreError as error:
            return self._put_privately(decision, replace, error)
        for cache, token in zip(caches, tokens, strict=True):
            self._finish(cache, current, token)
        for store in self._stores[:-1]:
            if not isinstance(store, SupportsFill):
                self._try(store, "put", current)
        return current

    def _put_untold(self, decision: Decision, error: StoreError) -> Decision:
        """Stores the first decision for a key though a cache cannot be told; raises StoreError if there is another."""
        current = self.put(decision, replace=False)
        if current != decision:
            raise StoreError(
                f"the decision for {decision.key.kernel} is not replaced: a cache that may have the old one cannot"
                f" be told ({error}); try again when it answers, or leave it out of `store`"
            ) from error
        return current

    def _finish(self, store: SupportsFill, current: Decision, token: FillToken | None) -> None:
        """Copies a decision to a cache; if it was changed there meanwhile, the cache forgets it and reads it again."""
        if token is None:
            return
        filled = self._try(store, "fill", [current], token)
        if filled == 0:
            self._try(store, "forget", [current.key], FILL_SECONDS)

    def _put_privately(self, decision: Decision, replace: bool, error: StoreError) -> Decision:
        """Stores a decision in memory only, for this process, as the record of truth fails; raises if there is none.

        A cache that others read must not have what the record of truth has not.
        """
        private = [store for store in self._stores[:-1] if isinstance(store, MemoryStore) and store.is_private]
        if not private:
            raise StoreError(f"no tier stored the decision for {decision.key.kernel}: {error}") from error
        self._warn_skipped(self._stores[-1], error)
        stored = [store.put(decision, replace=replace) for store in private]
        return stored[0]

    def relatives(self, key: Key, limit: int = 1000) -> Iterator[Decision]:
        """Yields decisions of related keys in any tier, each key once, from the nearest that has it."""
        decisions: dict[Key, Decision] = {}
        for store in self._stores:
            for decision in self._try(store, "relatives", key, limit) or ():
                decisions.setdefault(decision.key, decision)
        return iter(list(decisions.values())[:limit])

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """Yields all decisions, each key once, from the nearest tier that has it."""
        seen: set[Key] = set()
        for store in self._stores:
            for decision in self._try(store, "decisions", kernel) or ():
                if decision.key not in seen:
                    seen.add(decision.key)
                    yield decision

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Appends trials to the journal in the farthest tier that accepts them."""
        for store in reversed(self._stores):
            try:
                return store.record(key, trials)
            except StoreError as error:
                self._warn_skipped(store, error)
        raise StoreError(f"no tier stored {len(trials)} trials of {key.kernel}; see the log for the reasons")

    def trials(self, key: Key) -> Iterator[Trial]:
        """Yields the journal of a key, from every tier that has a part of it."""
        for store in reversed(self._stores):
            yield from self._try(store, "trials", key) or ()

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Yields the keys that have a decision or a trial in any tier."""
        seen: dict[Key, None] = {}
        for store in self._stores:
            seen |= dict.fromkeys(self._try(store, "keys", kernel) or ())
        return iter(seen)

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Acquires or renews the lease."""
        return bool(self._farthest(SupportsLeases, "claim", True, name, owner, seconds))

    def release(self, name: str, owner: str) -> None:
        """Releases the lease in every tier: while the farthest failed, a nearer one may have granted it."""
        for store in self._stores:
            if isinstance(store, SupportsLeases):
                self._try(store, "release", name, owner)

    def record_misses(self, misses: Sequence[MissRecord]) -> None:
        """Adds misses to the totals of their keys."""
        self._farthest(RecordsMisses, "record_misses", None, misses)

    def misses(self, kernel: str | None = None) -> Iterator[MissRecord]:
        """Yields the keys that are still undecided, most seconds first."""
        return iter(self._farthest(RecordsMisses, "misses", (), kernel))

    def history(self, key: Key) -> Sequence[Revision]:
        """Returns the revisions of a key, oldest first."""
        return list(self._farthest(KeepsRevisions, "history", (), key))

    def fetch(self, namespace: str, names: Sequence[str]) -> dict[str, bytes]:
        """Returns the entries under `names` that have not expired; not copied nearer, where they would live longer."""
        return dict(self._farthest(KeepsNamespaces, "fetch", {}, namespace, names))

    def keep(
        self, namespace: str, name: str, body: bytes, *, seconds: float | None = None, replace: bool = True
    ) -> bytes:
        """Stores `body` and returns what is now stored."""
        options = {"seconds": seconds, "replace": replace}
        return bytes(self._farthest(KeepsNamespaces, "keep", body, namespace, name, body, **options))

    def entries(self, namespace: str) -> Iterator[tuple[str, bytes]]:
        """Yields all entries of a namespace, oldest first."""
        return iter(self._farthest(KeepsNamespaces, "entries", (), namespace))

    def clear(self, namespace: str, *, keep: int = 0) -> int:
        """Removes all but the newest `keep` entries and returns how many were removed."""
        return int(self._farthest(KeepsNamespaces, "clear", 0, namespace, keep=keep))

    def read_attachment(self, kind: str, name: str) -> bytes | None:
        """Returns an attachment from the nearest tier that has it."""
        contents = (store.read_attachment(kind, name) for store in self._stores if isinstance(store, HasArtifacts))
        return next((content for content in contents if content is not None), None)

    def artifact_labels(self, kernel: str) -> Sequence[ArtifactLabel]:
        """Returns the labels of the artifacts built for a kernel."""
        stores = [store for store in self._stores if isinstance(store, HasArtifacts)]
        return [label for store in stores for label in store.artifact_labels(kernel)]

    def send_pending(self) -> int:
        """Sends the pending writes of all tiers."""
        return sum(store.send_pending() for store in self._stores if isinstance(store, HasPendingWrites))

    def sync(self) -> None:
        """Waits until a power cut loses nothing that was acknowledged so far."""
        for store in self._stores:
            if isinstance(store, SupportsSync):
                store.sync()

    def refused_writes(self) -> list[RefusedWrite]:
        """Returns the writes that were refused in any tier."""
        stores = [store for store in self._stores if isinstance(store, HasRefusedWrites)]
        return [write for store in stores for write in store.refused_writes()]

    def drop_refused(self) -> int:
        """Forgets the refused writes of all tiers."""
        return sum(store.drop_refused() for store in self._stores if isinstance(store, HasRefusedWrites))

    def retry_refused(self) -> int:
        """Makes the refused writes of all tiers pending again."""
        return sum(store.retry_refused() for store in self._stores if isinstance(store, HasRefusedWrites))

    def stats(self) -> StoreStats:
        """Returns how much is stored."""
        stats: StoreStats = self._farthest(SupportsMaintenance, "stats", StoreStats())
        return stats

    def trim(self, limits: RetentionLimits) -> StoreStats:
        """Removes records beyond `limits` and returns what was removed."""
        removed: StoreStats = self._farthest(SupportsMaintenance, "trim", StoreStats(), limits)
        return removed

    def faults(self) -> Iterator[str]:
        """Yields one sentence for each damaged record."""
        return iter(self._farthest(SupportsMaintenance, "faults", ()))

    def _token(self, store: Any, missing: Sequence[Key], unreadable: Sequence[Key]) -> FillToken | None:
        """Returns what is needed to fill a tier later; malformed records are removed from it, to be filled again."""
        if not isinstance(store, SupportsFill):
            return None
        forgotten: FillToken = (self._try(store, "forget", unreadable, CHANGE_SECONDS) or {}) if unreadable else {}
        token: FillToken | None = self._try(store, "fill_token", missing)
        return None if token is None else token | forgotten

    def _fill(self, store: Store, decisions: Sequence[Decision], token: FillToken | None) -> None:
        """Copies decisions of a farther tier, in one write if the nearer one supports it."""
        if isinstance(store, SupportsFill):
            if token is not None:
                self._try(store, "fill", decisions, token)
            return
        for decision in decisions:
            self._try(store, "put", decision, replace=False)

    def _farthest(self, capability: type, method: str, default: Any, *args: Any, **options: Any) -> Any:
        """Calls a method of the farthest tier that has the capability and does not fail; else returns `default`."""
        for store in reversed(self._stores):
            if isinstance(store, capability):
                try:
                    return _complete(getattr(store, method)(*args, **options))
                except StoreError as error:
                    self._warn_skipped(store, error)
        return default

    def _try(self, store: object, method: str, *args: Any, **options: Any) -> Any:
        """Calls a method of `store`; returns None if it fails."""
        try:
            return _complete(getattr(store, method)(*args, **options))
        except StoreError as error:
            self._warn_skipped(store, error)
            return None

    def _warn_skipped(self, store: object, error: StoreError) -> None:
        """Logs that a store fails: one warning, then debug messages."""
        report = log.debug if id(store) in self._warned else log.warning
        self._warned.add(id(store))
        report("%s is skipped: %s", type(store).__name__, error)


def _complete(result: Any) -> Any:
    """Reads an iterator to its end, so that it fails here and not in the caller."""
    return list(result) if isinstance(result, Iterator) else result
