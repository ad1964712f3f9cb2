"""Mirror store: a remote store with a local one that answers while the remote is down, and forwards writes later."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Any, Protocol, TypeVar

import msgspec

from tunewright.errors import StoreError, WriteRefused
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.ports.store import Store
from tunewright.stores import namespaces, serialization
from tunewright.stores.capabilities import (
    FillToken,
    KeepsLogs,
    KeepsNamespaces,
    SupportsFill,
    SupportsLeases,
    SupportsMaintenance,
    SupportsSync,
)
from tunewright.stores.circuit_breaker import CAPABILITY_METHODS
from tunewright.stores.doubts import Doubts
from tunewright.stores.pending_writes import PENDING, PendingWrite, PendingWrites, decode_pending
from tunewright.stores.records import RecordReader
from tunewright.stores.statistics import RefusedWrite, RetentionLimits
from tunewright.stores.tiered import FILL_SECONDS

log = LazyLogger(__name__)

T = TypeVar("T")

SEND_LEASE_SECONDS = 60.0
"""How long one pending write may take to send before another process may try."""

CATCH_UP_SECONDS = 0.5
"""How long a write may be delayed by sending pending writes of other keys; the next write continues."""

PENDING_CACHE_SECONDS = 1.0
"""How long a reader uses its last list of pending writes, which may be long."""

REFUSED = namespaces.REFUSED_WRITES.name
"""The namespace of the local store for writes that the remote refused."""

MAX_REFUSED = 1000
"""Refused writes that are kept; the oldest are dropped."""

MAX_MIRROR_BYTES = 256 << 20
"""Bytes of records in a local mirror from which the oldest are dropped; pending writes never are."""

DECISIONS_PER_CHECK = 10_000
"""Copied decisions between two checks of the size of a mirror."""


class MirrorTarget(Store, SupportsFill, SupportsLeases, KeepsNamespaces, Protocol):
    """What a local store needs to be a mirror."""


class MirrorStore:
    """The remote is the record of truth: it is read first, and its answers are copied to the local store.

    While it fails (StoreError), the local store answers and keeps new writes. They are not lost: `send_pending`, or the
    next write that the remote accepts, sends them. A decision that is sent late wins only if no other came first.
    Trials are sent at least once: a remote that fails after storing them gets them again. One local store serves one
    remote, for all processes of a machine.

    A write that the remote refuses (WriteRefused) is not kept for later: it raises, or, if it was pending, is moved to
    the refused writes, and the others go on. `clock` returns seconds.
    """

    def __init__(self, remote: Store, local: MirrorTarget, clock: Callable[[], float] = time.monotonic) -> None:
        self._remote, self._local, self._clock = remote, local, clock
        self._owner = uuid.uuid4().hex
        self._pending = PendingWrites(local, self._report_local, clock)
        self._reader = RecordReader("the mirror")
        self._copied = 0
        self._doubts = Doubts()
        self._is_down = self._warned_local = self._warned_refused = False
        for capability, methods in CAPABILITY_METHODS.items():
            if capability in (SupportsFill, KeepsLogs):
                continue  # a record of truth is not filled from other stores, and its log is not written elsewhere
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
            began, token = self._clock(), self._try_local(lambda: self._local.fill_token(keys))
            found = self._reader.readable(self._remote.get_many(keys))
            found = self._with_pending(found, set(keys).__contains__)
            if self._clock() - began < FILL_SECONDS:
                self._copy(found, token)
            return found

        return self._remote_or_local(remote, lambda: self._read_local(keys))

    def _read_local(self, keys: Sequence[Key], own: object = None) -> dict[Key, Decision]:
        self._resolve_doubts()
        doubtful = self._doubts.keys(apart_from=own)
        found = self._reader.readable(self._local.get_many([key for key in keys if key not in doubtful]))
        return self._with_pending(found, set(keys).__contains__)

    def _resolve_doubts(self) -> None:
        """Removes local decisions that may be older than those of the remote."""
        if (failed := self._doubts.failed()) and self._try_local(
            lambda: self._local.forget(list(failed.values()), FILL_SECONDS)
        ) is not None:
            self._doubts.resolve(failed)

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Stores `decision` and returns the one now stored."""

        def remote() -> Decision:
            self._catch_up(decision.key)
            self._resolve_doubts()
            token = self._try_local(lambda: self._local.fill_token([decision.key]))
            current = self._remote.put(decision, replace=replace)
            if self._copy({decision.key: current}, token, changed=True):
                self._doubts.resolve([doubt])
            return current

        def local() -> Decision:
            before = self._read_local([decision.key], doubt).get(decision.key)
            current = self._local.put(decision, replace=replace)
            if current == decision:
                over = None if before == decision else before
                self._pending.add(PendingWrite.of_decision(decision, over))
            self._doubts.resolve([doubt])
            return current

        doubt = self._doubts.begin(decision.key)
        try:
            return self._write(PendingWrite.of_decision(decision), remote, local)
        finally:
            self._doubts.end(doubt)

    def relatives(self, key: Key, limit: int = 1000) -> Iterator[Decision]:
        """Yields up to `limit` decisions of related keys."""

        def remote() -> list[Decision]:
            decisions = {decision.key: decision for decision in self._remote.relatives(key, limit)}
            decisions = self._with_pending(decisions, lambda pending: pending.related_digest == key.related_digest)
            self._copy(decisions, {})
            return list(decisions.values())

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
            self._pending.add(write)

        write = PendingWrite(key, trials=tuple(trials))
        self._write(write, remote, local)

    def trials(self, key: Key) -> Iterator[Trial]:
        """Yields the journal of a key: the remote's and pending trials; while it is down, those stored locally."""

        def remote() -> list[Trial]:
            pending = [trial for _, write in self._pending.read() if write.key == key for trial in write.trials]
            return [*self._remote.trials(key), *pending]

        return iter(self._remote_or_local(remote, lambda: list(self._local.trials(key))))

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Yields the keys that have a decision or a trial."""

        def remote() -> list[Key]:
            pending = [write.key for _, write in self._pending.read() if kernel in (None, write.key.kernel)]
            return list(dict.fromkeys([*self._remote.keys(kernel), *pending]))

        return iter(self._remote_or_local(remote, lambda: list(self._local.keys(kernel))))

    def send_pending(self, seconds: float = inf, first: Key | None = None) -> int:
        """Sends pending writes, oldest first, and returns their number; raises StoreError if the remote is down.

        It ends after `seconds`, but not before all writes of the key `first` are sent. One process sends at a time; the
        others go on.
        """
        sent = 0
        if not self._pending.read() or not self._try_local(self._local.claim, PENDING, self._owner, SEND_LEASE_SECONDS):
            return sent
        deadline = self._clock() + seconds
        try:
            for name, write in sorted(self._pending.read(), key=lambda item: item[1].key != first):
                if write.key != first and self._clock() > deadline:
                    return sent
                try:
                    self._send(write)
                    sent += 1
                except WriteRefused as error:
                    self._keep_refused(write, error)
                self._try_local(self._pending.remove, name)
                self._try_local(self._local.claim, PENDING, self._owner, SEND_LEASE_SECONDS)
        finally:
            self._try_local(self._local.release, PENDING, self._owner)
        log.info("sent %d pending writes to the remote store", sent)
        return sent

    def sync(self) -> None:
        """Waits until a power cut loses nothing that was acknowledged so far."""
        if isinstance(self._local, SupportsSync):
            self._local.sync()

    def refused_writes(self) -> list[RefusedWrite]:
        """Returns the writes that the remote refused, oldest first."""
        return [
            RefusedWrite(write.key, write.reason, write.decision, len(write.trials))
            for _, write in self._read_refused()
        ]

    def _read_refused(self) -> list[tuple[str, PendingWrite]]:
        entries = list(self._local.entries(REFUSED))
        writes = [(name, self._reader.read_or_skip("a refused write", decode_pending, body)) for name, body in entries]
        return [(name, write) for name, write in writes if write is not None]

    def drop_refused(self) -> int:
        """Forgets the writes that the remote refused, and returns their number."""
        count = len(self._read_refused())
        self._local.clear(REFUSED)
        return count

    def retry_refused(self) -> int:
        """Makes refused writes pending again, and returns their number."""
        count = 0
        for name, write in self._read_refused():
            self._pending.add(msgspec.structs.replace(write, reason=""))
            self._local.keep(REFUSED, name, b"", seconds=0.0)
            count += 1
        return count

    def _write(self, write: PendingWrite, remote: Callable[[], T], local: Callable[[], T]) -> T:
        """Writes to the remote, or to the local store if that fails; keeps and raises a refusal."""
        try:
            return self._remote_or_local(remote, local, is_write=True)
        except WriteRefused as error:
            self._keep_refused(write, error)
            raise

    def _keep_refused(self, write: PendingWrite, error: WriteRefused) -> None:
        report = log.debug if self._warned_refused else log.warning  # one warning, then debug messages
        self._warned_refused = True
        report("the remote store refused a write, which is listed by `tunewright store refused`: %s", error)
        body = serialization.encode(msgspec.structs.replace(write, reason=str(error)))
        self._try_local(self._local.keep, REFUSED, uuid.uuid4().hex, body)
        self._try_local(self._local.clear, REFUSED, keep=MAX_REFUSED)

    def _catch_up(self, key: Key) -> None:
        """Sends pending writes before a new one: all of this key, and some of others."""
        if self._is_down and self._pending.may_exist:
            self._remote.get(key)  # while this fails, reading the pending writes is useless
        self.send_pending(CATCH_UP_SECONDS, key)

    def _send(self, write: PendingWrite) -> None:
        if write.trials:
            self._remote.record(write.key, write.trials)
        if (decision := write.signed()) is not None:
            token = self._try_local(lambda: self._local.fill_token([write.key]))
            replace = write.over is not None and write.prevails(self._remote.get(write.key))
            doubt = self._doubts.begin(write.key)
            try:
                if self._copy({write.key: self._remote.put(decision, replace=replace)}, token, changed=True):
                    self._doubts.resolve([doubt])
            finally:
                self._doubts.end(doubt)

    def _with_pending(self, decisions: dict[Key, Decision], belongs: Callable[[Key], bool]) -> dict[Key, Decision]:
        """Adds pending decisions to those of the remote, as they will be once it has received them."""
        for _, write in self._pending.read(PENDING_CACHE_SECONDS):
            if belongs(write.key) and write.prevails(decisions.get(write.key)):
                decision = write.signed()
                assert decision is not None
                decisions[write.key] = decision
        return decisions

    def _copy(self, decisions: dict[Key, Decision], token: FillToken | None, *, changed: bool = False) -> bool:
        """Copies decisions that are new to the local store, unless they changed there since the token was taken.

        A decision that this process changed and that cannot be copied is forgotten: the local one may be older. Returns
        whether the local store answered.
        """

        def copy() -> bool:
            known = self._local.get_many(list(decisions))
            new = [decision for key, decision in decisions.items() if not _is_same(known.get(key), decision)]
            if new and self._local.fill(new, token) < len(new) and changed:
                self._local.forget(list(decisions), FILL_SECONDS)
            self._bound(len(new))
            return True

        return token is not None and self._try_local(copy) is not None

    def _bound(self, copied: int) -> None:
        """Drops the oldest records of a mirror that has become too large."""
        self._copied += copied
        if self._copied >= DECISIONS_PER_CHECK and isinstance(self._local, SupportsMaintenance):
            self._copied = 0
            self._local.trim(RetentionLimits(bytes=MAX_MIRROR_BYTES, decisions=True))

    def _remote_or_local(self, remote: Callable[[], T], local: Callable[[], T], *, is_write: bool = False) -> T:
        """Returns the result of `remote`, or of `local` if it fails; warns once per outage. A refused write raises."""
        try:
            result = remote()
        except StoreError as error:
            if is_write and isinstance(error, WriteRefused):
                self._is_down = False
                raise
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
            self._report_local(error)
            return None

    def _report_local(self, error: StoreError) -> None:
        report = log.debug if self._warned_local else log.warning  # one warning, then debug messages
        self._warned_local = True
        report("the local mirror is skipped: %s", error)

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


def _is_same(known: Decision | None, decision: Decision) -> bool:
    """Whether the local store has this very record, signature included."""
    return known is not None and serialization.dump_decision(known) == serialization.dump_decision(decision)
