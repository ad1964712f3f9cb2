"""Archive: the stores behind a service: caches that may fail, and a record of truth whose errors are errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any

from tunewright.errors import StoreError, WireError
from tunewright.model.decision import Decision
from tunewright.model.device import Device
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.ports.store import Store
from tunewright.remarks import Remarks
from tunewright.sharing import wire
from tunewright.sharing.offers import Shelves
from tunewright.stores import places
from tunewright.stores.guarded import Guarded

log = Remarks(__name__)

LEFT_ALONE = 1.0
"""Seconds that the record of truth is left alone after a failure, so that a dead one does not hold every thread."""

_NO_SIGNATURE, _NO_DEVICE = Signature(()), Device("", "", "")


def key_of(digest: str) -> Key:
    """A key of which only the digest is known, which is all that looking up needs."""
    key = Key("", "", _NO_SIGNATURE, _NO_DEVICE)
    key.__dict__["digest"] = digest
    return key


def named(found: dict[Key, Decision]) -> dict[str, Decision]:
    """Decisions with their whole keys, by digest; one whose record is of another key is passed over."""
    whole: dict[str, Decision] = {}
    for key, decision in found.items():
        try:
            read = decision if decision.body is None else wire.load_decision(decision.body)
        except WireError as error:
            log.warning("a record is passed over: %s; `store verify` lists all such", error)
            continue
        if read.key.digest == key.digest:
            whole[key.digest] = read
    return whole


class Near:
    """A cache before the record of truth. What it missed while it was away it gets before it is believed again."""

    def __init__(self, store: Store) -> None:
        self._store: Any = Guarded(store)
        self._owed: dict[str, Decision] = {}
        self._lock = Lock()

    def read(self, digests: Sequence[str]) -> dict[str, Decision]:
        """What it knows; nothing while it is away."""
        try:
            return named(self._store.get_many([key_of(digest) for digest in digests])) if self._settled() else {}
        except StoreError:
            return {}

    def warm(self, decisions: Sequence[Decision]) -> None:
        """Take over what the record of truth answered, where it has nothing: it may have got something newer."""
        try:
            for decision in decisions if self._settled() else ():
                self._store.put(decision, replace=False)
        except StoreError as error:
            log.debug("a cache is away: %s", error)

    def change(self, decision: Decision) -> None:
        """Take over what stands from now on."""
        with self._lock:
            self._owed[decision.key.digest] = decision
        self._settled()

    def _settled(self) -> bool:
        """Whether nothing is owed to it."""
        if not self._owed:
            return True
        with self._lock:
            try:
                for digest, decision in list(self._owed.items()):
                    self._store.put(decision)
                    del self._owed[digest]
            except StoreError:
                return False
            return True


class Archive:
    """Where a service keeps what it is given. Blocking: to be called from threads."""

    def __init__(self, location: str) -> None:
        *nearer, farthest = places.each(location)
        self.location = location
        self.near = [Near(store) for store in nearer]
        self.truth: Any = Guarded(farthest, longest=LEFT_ALONE)
        if not isinstance(self.truth, Shelves):
            raise StoreError(
                f"{type(farthest).__name__} has no shelves, where a service keeps its tokens; "
                "use SQLite, PostgreSQL or Redis as the farthest store"
            )

    def records(self, digests: Sequence[str]) -> dict[str, bytes]:
        """The records there are, from the nearest that has them. A StoreError if the record of truth is away."""
        found: dict[str, Decision] = {}
        missing = list(digests)
        for cache in self.near:
            found |= cache.read(missing)
            missing = [digest for digest in missing if digest not in found]
        if missing:
            fresh = named(self.truth.get_many([key_of(digest) for digest in missing]))
            for cache in self.near:
                cache.warm(list(fresh.values()))
            found |= fresh
        return {digest: wire.dump_decision(decision) for digest, decision in found.items()}

    def put(self, decision: Decision, *, replace: bool) -> Decision:
        """Keep `decision` in the record of truth, then tell the caches; the one that stands."""
        standing: Decision = self.truth.put(decision, replace=replace)
        for cache in self.near:
            cache.change(standing)
        return standing

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """The decisions there are for `keys`, in the record of truth."""
        found: dict[Key, Decision] = self.truth.get_many(keys)
        return found

    def relatives(self, key: Key, most: int = 1000) -> Iterator[Decision]:
        """Decisions of the same kin, in the record of truth."""
        found: Iterator[Decision] = self.truth.relatives(key, most)
        return found
