"""Pending writes of a mirror: kept in its local store until the remote has received them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from threading import Lock

import msgspec

from tunewright.errors import StoreError, WireError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision
from tunewright.model.key import SCHEMA, Key
from tunewright.model.trial import Trial
from tunewright.stores import namespaces, serialization
from tunewright.stores.capabilities import KeepsNamespaces, SupportsSync

log = LazyLogger(__name__)

PENDING = namespaces.PENDING_WRITES.name
"""The namespace of the local store for pending writes, and the lease of the process that sends them."""

RECHECK_SECONDS = 30.0
"""How long a process that knows of no pending writes goes without looking for those of others."""


class PendingWrite(msgspec.Struct, frozen=True, omit_defaults=True):
    """A write that the remote has not received: trials, or a decision that was put when `over` was current locally.

    `reason` says why the remote refused it, if it did.
    """

    key: Key
    decision: Decision | None = None
    over: Decision | None = None
    trials: tuple[Trial, ...] = ()
    schema: int = SCHEMA
    reason: str = ""
    author: str = ""

    @classmethod
    def of_decision(cls, decision: Decision, over: Decision | None = None) -> PendingWrite:
        """Returns the pending write of a decision, with its signature if it has one."""
        author = serialization.without_author(decision.body)[1] if decision.body is not None else ""
        return cls(decision.key, decision, over, author=author)

    def signed(self) -> Decision | None:
        """Returns the decision as it was put, with its signature if it had one."""
        if self.decision is None or not self.author:
            return self.decision
        record = serialization.dump_decision(self.decision)
        return serialization.load_decision(serialization.with_author(record, self.author))

    def prevails(self, current: Decision | None) -> bool:
        """Returns whether the decision wins: there is none, or the one it was meant to replace."""
        return self.decision is not None and (current is None or current == self.over)


class PendingWrites:
    """The pending writes in a local store, which all processes of a machine share. Threads may share it."""

    def __init__(
        self,
        local: KeepsNamespaces,
        report_unreadable: Callable[[StoreError], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._local, self._report_unreadable, self._clock = local, report_unreadable, clock
        self._lock = Lock()
        self._writes: list[tuple[str, PendingWrite]] = []
        self._changes, self._known_changes = 1, 0
        self._read_at = float("-inf")
        self._warned = False

    @property
    def may_exist(self) -> bool:
        """Whether there may be pending writes: some were seen, or it is time to look again."""
        return bool(self._writes) or self._changes != self._known_changes or self._is_due(RECHECK_SECONDS)

    def add(self, write: PendingWrite) -> None:
        """Stores a pending write, under a unique name, so that no later one replaces it, and waits for the disk.

        Until the remote is back, this is the only copy of what is about to be acknowledged.
        """
        try:
            self._local.keep(PENDING, uuid.uuid4().hex, serialization.encode(write))
            if isinstance(self._local, SupportsSync):
                self._local.sync()
        finally:
            self._note_change()  # even if it fails: it may have been stored

    def remove(self, name: str) -> None:
        """Removes a write that was sent, by replacing it with an entry that expires at once."""
        self._local.keep(PENDING, name, b"", seconds=0.0)
        self._note_change()

    def read(self, max_age: float = 0.0) -> list[tuple[str, PendingWrite]]:
        """Returns the pending writes, oldest first, with their names, as they were at most `max_age` seconds ago."""
        if not self.may_exist:
            return []
        changes, began = self._changes, self._clock()  # a write that is added from here on is read the next time
        if changes == self._known_changes and not self._is_due(max_age):
            return self._writes
        try:
            entries = list(self._local.entries(PENDING))
        except StoreError as error:
            self._report_unreadable(error)
            return self._writes
        writes = [(name, write) for name, body in entries if (write := self._decode(body)) is not None]
        with self._lock:
            if changes >= self._known_changes:  # otherwise another thread has read a later state meanwhile
                self._writes, self._known_changes, self._read_at = writes, changes, began
        return writes

    def _is_due(self, max_age: float) -> bool:
        return self._clock() - self._read_at >= max_age

    def _note_change(self) -> None:
        with self._lock:
            self._changes += 1

    def _decode(self, body: bytes) -> PendingWrite | None:
        try:
            return decode_pending(body)
        except WireError as error:
            report = log.debug if self._warned else log.warning  # one warning, then debug messages
            self._warned = True
            report("a pending write is skipped: %s", error)
            return None


def decode_pending(body: bytes) -> PendingWrite | None:
    """Returns a pending write; None if it was sent or has another schema. Raises WireError if it is malformed."""
    if not body:
        return None
    write = serialization.decode(body, PendingWrite)
    if write.decision is not None and write.decision.key != write.key:
        raise WireError(f"its decision is for another key, {write.decision.key.digest[:12]}")
    return write if write.schema == SCHEMA else None
