"""Mirror store: a remote store with a local one that answers while the remote is down, and forwards writes later."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Any, Protocol, TypeVar

import msgspec

from tunewright.errors import StoreError, WireError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision
from tunewright.model.key import SCHEMA, Key
from tunewright.model.trial import Trial
from tunewright.ports.store import Store
from tunewright.stores import serialization
from tunewright.stores.capabilities import KeepsNamespaces, SupportsFill, SupportsLeases, SupportsMaintenance
from tunewright.stores.circuit_breaker import CAPABILITY_METHODS

log = LazyLogger(__name__)

T = TypeVar("T")

PENDING = "unsent"
"""The namespace of the local store for pending writes, and the lease of the process that sends them."""

SEND_LEASE_SECONDS = 60.0
"""How long one pending write may take to send before another process may try."""

CATCH_UP_SECONDS = 0.5
"""How long a write may be delayed by sending pending writes of other keys; the next write continues."""

PENDING_CACHE_SECONDS = 1.0
"""How long a reader uses its last list of pending writes, which may be long."""


class MirrorTarget(Store, SupportsFill, SupportsLeases, KeepsNamespaces, Protocol):
    """What a local store needs to be a mirror."""


class PendingWrite(msgspec.Struct, frozen=True, omit_defaults=True):
    """A write that the remote has not received: trials, or a decision that was put when `over` was current locally."""

    key: Key
    decision: Decision | None = None
    over: Decision | None = None
    trials: tuple[Trial, ...] = ()
    schema: int = SCHEMA

    def prevails(self, current: Decision | None) -> bool:
        """Returns whether the decision wins: there is none, or the one it was meant to replace."""
        return self.decision is not None and (current is None or current == self.over)


class MirrorStore:
    """The remote is the record of truth: it is read first, and its answers are copied to the local store.

    While it fails (StoreError), the local store answers and keeps new writes. They are not lost: `send_pending`, or the
    next write that the remote accepts, sends them. A decision that is sent late wins only if no other came first.
    Trials are sent at least once: a remote that fails after storing them gets them again. One local store serves one
    remote, for all processes of a machine.
    """

    def __init__(self, remote: Store, local: MirrorTarget) -> None:
        self._remote, self._local = remote, local
        self._owner = uuid.uuid4().hex
        self._has_pending = True  # until the local store shows otherwise: an earlier process may have left some
        self._pending: list[tuple[str, PendingWrite]] = []
        self._pending_read_at = float("-inf")
        self._is_down = self._warned_local = False
        for capability, methods in CAPABILITY_METHODS.items():
            if capability is SupportsFill:
                continue  # a record of truth is not filled from other stores
            fallback: Any = None if capability is SupportsMaintenance else local
            stores = [store for store in (remote, fallback) if isinstance(store, capability)]
            for method in methods if stores else ():
                # Set on the object, so that `isinstance` shows which capabilities there are.
                call = self._call_both if method == "release" else self._call_either
                setattr(self, method, partial(call, stores, method))

    def get(self, key: Key) -> Decision | None:
        """Returns the decision for exactly this key."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """Returns the decisions that exist for `keys`."""

        def remote() -> dict[Key, Decision]:
            return self._copy(self._with_pending(self._remote.get_many(keys), set(keys).__contains__))

        return self._remote_or_local(remote, lambda: self._local.get_many(keys))

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Stores `decision` and returns the one now stored."""

        def remote() -> Decision:
            self._catch_up(decision.key)
            current = self._remote.put(decision, replace=replace)
            self._copy({decision.key: current})
            return current

        def local() -> Decision:
            before = self._local.get(decision.key)
            current = self._local.put(decision, replace=replace)
            if current == decision:
                over = None if before == decision else before
                self._add_pending(PendingWrite(decision.key, decision, over))
            return current

        return self._remote_or_local(remote, local)

    def relatives(self, key: Key, limit: int = 1000) -> Iterator[Decision]:
        """Yields up to `limit` decisions of related keys."""

        def remote() -> list[Decision]:
            decisions = {decision.key: decision for decision in self._remote.relatives(key, limit)}
            return list(
                self._copy(
                    self._with_pending(decisions, lambda pending: pending.related_digest == key.related_digest)
                ).values()
            )

        return iter(self._remote_or_local(remote, lambda: list(self._local.relatives(key, limit)))[:limit])

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """Yields all decisions, or those of one kernel."""

        def remote() -> list[Decision]:
            decisions = {decision.key: decision for decision in self._remote.decisions(kernel)}
            return list(self._with_pending(decisions, lambda key: kernel in (None, key.kernel)).values())

        return iter(self._remote_or_local(remote, lambda: list(self._local.decisions(kernel))))

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Appends trials to the journal of a key."""

        def remote() -> None:
            self._catch_up(key)
            self._remote.record(key, trials)

        def local() -> None:
            self._local.record(key, trials)
            self._add_pending(PendingWrite(key, trials=tuple(trials)))

        self._remote_or_local(remote, local)

    def trials(self, key: Key) -> Iterator[Trial]:
        """Yields the journal of a key: the remote's and pending trials; while it is down, those stored locally."""

        def remote() -> list[Trial]:
            pending = [trial for _, write in self._read_pending() if write.key == key for trial in write.trials]
            return [*self._remote.trials(key), *pending]

        return iter(self._remote_or_local(remote, lambda: list(self._local.trials(key))))

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Yields the keys that have a decision or a trial."""

        def remote() -> list[Key]:
            pending = [write.key for _, write in self._read_pending() if kernel in (None, write.key.kernel)]
            return list(dict.fromkeys([*self._remote.keys(kernel), *pending]))

        return iter(self._remote_or_local(remote, lambda: list(self._local.keys(kernel))))

    def send_pending(self, seconds: float = inf, first: Key | None = None) -> int:
        """Sends pending writes, oldest first, and returns their number; raises StoreError if the remote is down.

        It ends after `seconds`, but not before all writes of the key `first` are sent. One process sends at a time; the
        others go on.
        """
        sent = 0
        if not self._read_pending() or not self._try_local(self._local.claim, PENDING, self._owner, SEND_LEASE_SECONDS):
            return sent
        deadline = time.monotonic() + seconds
        try:
            for name, write in sorted(self._read_pending(), key=lambda item: item[1].key != first):
                if write.key != first and time.monotonic() > deadline:
                    return sent
                self._send(write)
                # A single entry is removed by replacing it with one that expires at once.
                self._try_local(self._local.keep, PENDING, name, b"", seconds=0.0)
                self._try_local(self._local.claim, PENDING, self._owner, SEND_LEASE_SECONDS)
                sent += 1
        finally:
            self._try_local(self._local.release, PENDING, self._owner)
        self._has_pending = False
        log.info("sent %d pending writes to the remote store", sent)
        return sent

    def _catch_up(self, key: Key) -> None:
        """Sends pending writes before a new one: all of this key, and some of others."""
        if self._has_pending and self._is_down:
            self._remote.get(key)  # while this fails, reading the pending writes is useless
        self.send_pending(CATCH_UP_SECONDS, key)

    def _send(self, write: PendingWrite) -> None:
        if write.trials:
            self._remote.record(write.key, write.trials)
        if write.decision is not None:
            replace = write.over is not None and write.prevails(self._remote.get(write.key))
            self._copy({write.key: self._remote.put(write.decision, replace=replace)})

    def _add_pending(self, write: PendingWrite) -> None:
        """Stores a pending write, under a unique name, so that no later one replaces it."""
        self._local.keep(PENDING, uuid.uuid4().hex, serialization.encode(write))
        self._has_pending, self._pending_read_at = True, float("-inf")

    def _read_pending(self, max_age: float = 0.0) -> list[tuple[str, PendingWrite]]:
        """Returns the pending writes, oldest first, with their names, as they were at most `max_age` seconds ago."""
        if self._has_pending and time.monotonic() - self._pending_read_at >= max_age:
            entries = self._try_local(lambda: list(self._local.entries(PENDING))) or ()
            self._pending = [(name, write) for name, body in entries if (write := _decode_pending(body)) is not None]
            self._has_pending, self._pending_read_at = bool(self._pending), time.monotonic()
        return self._pending if self._has_pending else []

    def _with_pending(self, decisions: dict[Key, Decision], belongs: Callable[[Key], bool]) -> dict[Key, Decision]:
        """Adds pending decisions to those of the remote, as they will be once it has received them."""
        for _, write in self._read_pending(PENDING_CACHE_SECONDS):
            if write.decision is not None and belongs(write.key) and write.prevails(decisions.get(write.key)):
                decisions[write.key] = write.decision
        return decisions

    def _copy(self, decisions: dict[Key, Decision]) -> dict[Key, Decision]:
        """Copies decisions that are new to the local store, and returns all."""

        def copy() -> None:
            known = self._local.get_many(list(decisions))
            if changed := [decision for key, decision in decisions.items() if known.get(key) != decision]:
                self._local.fill(changed)

        self._try_local(copy)
        return decisions

    def _remote_or_local(self, remote: Callable[[], T], local: Callable[[], T]) -> T:
        """Returns the result of `remote`, or of `local` if it fails; warns once per outage."""
        try:
            result = remote()
        except StoreError as error:
            report = log.debug if self._is_down else log.warning
            self._is_down = True
            report("using the local mirror: %s", error)
            return local()
        self._is_down = False
        return result

    def _try_local(self, call: Callable[..., T], *args: Any, **options: Any) -> T | None:
        """Calls the local store; returns None if it fails, since the remote still works."""
        try:
            return call(*args, **options)
        except StoreError as error:
            report = log.debug if self._warned_local else log.warning  # one warning, then debug messages
            self._warned_local = True
            report("the local mirror is skipped: %s", error)
            return None

    def _call_either(self, stores: Sequence[Any], method: str, *args: Any, **options: Any) -> Any:
        """Calls a method of the first of `stores` that does not fail."""

        def call(store: Any) -> Any:
            result = getattr(store, method)(*args, **options)
            return iter(list(result)) if isinstance(result, Iterator) else result

        if len(stores) == 1:
            return call(stores[0])
        return self._remote_or_local(lambda: call(stores[0]), lambda: call(stores[1]))

    def _call_both(self, stores: Sequence[Any], method: str, *args: Any, **options: Any) -> None:
        """Calls a method of all `stores`: a lease may have been granted locally while the remote was down."""
        self._remote_or_local(lambda: getattr(stores[0], method)(*args, **options), lambda: None)
        for store in stores[1:]:
            self._try_local(getattr(store, method), *args, **options)


def _decode_pending(body: bytes) -> PendingWrite | None:
    """Returns a pending write; None if it was sent, or cannot be read: then it stays in the store."""
    if not body:
        return None
    try:
        write = serialization.decode(body, PendingWrite)
    except WireError as error:
        log.warning("a pending write is skipped: %s", error)
        return None
    return write if write.schema == SCHEMA else None
