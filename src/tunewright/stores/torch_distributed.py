"""Store for the ranks of one job, on the key-value store of torch.distributed; gone with the job."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from tunewright.errors import StoreError, WireError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.stores import serialization

log = LazyLogger(__name__)

SECONDS = 10.0
"""How long one call may take; the default of torch's store is minutes."""


class TorchDistributedStore:
    """Decisions that the ranks of a job share, without a server of ours and without collective calls.

    Ranks may miss keys in any order, and a rank that dies delays nobody: there is no collective to wait in. The host
    of torch's store (torchrun's agent, or the first rank) must live; without it every call is a StoreError within
    seconds.
    """

    def __init__(self, store: Any, seconds: float = SECONDS) -> None:
        from datetime import timedelta  # noqa: PLC0415 - only torch needs it

        from torch.distributed import PrefixStore  # noqa: PLC0415 - heavy, and only for ranks

        self._store = PrefixStore("tunewright", store.clone() if hasattr(store, "clone") else store)
        self._store.set_timeout(timedelta(seconds=seconds))
        self._lock = Lock()
        self._leases: dict[str, tuple[str, float]] = {}

    @classmethod
    def at(cls, location: str) -> TorchDistributedStore:
        """Opens the store of the default process group, at `torch:`."""
        from torch import distributed  # noqa: PLC0415 - heavy, and only for ranks
        from torch.distributed.distributed_c10d import _get_default_store  # noqa: PLC0415 - there is no public way

        if not distributed.is_available() or not distributed.is_initialized():
            raise StoreError(f"{location} needs torch.distributed: call init_process_group first")
        return cls(_get_default_store(), SECONDS)

    @contextmanager
    def _locked(self) -> Iterator[Any]:
        """Yields torch's store, to one thread at a time; its errors become StoreErrors."""
        try:
            with self._lock:
                yield self._store
        except RuntimeError as error:  # the base of torch's errors
            raise StoreError(f"the store of torch.distributed fails: {str(error).splitlines()[0]}") from error

    def get(self, key: Key) -> Decision | None:
        """Returns the decision for exactly this key."""
        with self._locked() as store:
            if not store.check([key.digest]):
                return None
            body = store.get(key.digest)
        return _load_decision(body, key)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """Returns the decisions that exist for `keys`, in two round trips."""
        wanted = {key.digest: key for key in keys}
        stored = [digest for digest in self._read_index("decisions") if digest in wanted]
        return {decision.key: decision for decision in self._read(stored) if decision.key.digest in wanted}

    def _read(self, digests: Sequence[str]) -> list[Decision]:
        if not digests:
            return []
        with self._locked() as store:
            bodies = store.multi_get(list(digests))
        return [decision for body in bodies if (decision := _load_decision(body, None)) is not None]

    def _read_index(self, name: str) -> list[str]:
        """Returns the lines of an index without duplicates."""
        with self._locked() as store:
            text = store.get(name).decode() if store.check([name]) else ""
        return list(dict.fromkeys(text.split("\n")[:-1]))

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Stores `decision` and returns the one now stored."""
        digest, body = decision.key.digest, serialization.dump_decision(decision).decode()
        with self._locked() as store:
            if replace:
                store.set(digest, body)
                current = body
            else:
                current = store.compare_set(digest, "", body).decode()
            store.append("decisions", f"{digest}\n")
        return decision if current == body else _load_decision(current, decision.key) or self.put(decision)

    def relatives(self, key: Key, limit: int = 1000) -> Iterator[Decision]:
        """Yields up to `limit` decisions of related keys."""
        decisions = [
            decision for decision in self.decisions(key.kernel) if decision.key.related_digest == key.related_digest
        ]
        return iter(decisions[:limit])

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """Yields all decisions, or those of one kernel."""
        decisions = self._read(self._read_index("decisions"))
        return (decision for decision in decisions if kernel in (None, decision.key.kernel))

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Appends trials to the journal of a key."""
        lines = "".join(f"{serialization.dump_trial(trial).decode()}\n" for trial in trials)
        with self._locked() as store:
            store.append("journals", f"{serialization.dump_key(key).decode()}\n")
            store.append(f"trials of {key.digest}", lines)

    def trials(self, key: Key) -> Iterator[Trial]:
        """Yields the journal of a key."""
        name = f"trials of {key.digest}"
        with self._locked() as store:
            text = store.get(name).decode() if store.check([name]) else ""
        return iter([serialization.load_trial(line) for line in text.splitlines()])

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Yields the keys that have a decision or a trial."""
        decided = [decision.key for decision in self.decisions(kernel)]
        recorded = [serialization.load_key(line) for line in self._read_index("journals")]
        return (key for key in dict.fromkeys([*decided, *recorded]) if kernel in (None, key.kernel))

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Acquires or renews the lease.

        Clocks of hosts differ, so a lease has expired for a rank that saw it unchanged for as long as it lasts.
        """
        slot, now = f"lease {name}", time.monotonic()
        with self._locked() as store:
            current = store.get(slot).decode() if store.check([slot]) else ""
            holder, duration, turn = current.split("\n") if current else ("", "0", "0")
            seen, since = self._leases.get(name, ("", now))
            if current != seen:
                self._leases[name] = current, (since := now)
            if holder not in ("", owner) and now - since < float(duration):
                return False
            own = f"{owner}\n{seconds}\n{int(turn) + 1}"
            acquired = bool(store.compare_set(slot, current, own).decode() == own)
        if acquired:
            self._leases[name] = own, now
        return acquired

    def release(self, name: str, owner: str) -> None:
        """Releases the lease."""
        slot = f"lease {name}"
        with self._locked() as store:
            current = store.get(slot).decode() if store.check([slot]) else ""
            holder, _, turn = current.split("\n") if current else ("", "0", "0")
            if holder == owner:
                store.compare_set(slot, current, f"\n0\n{int(turn) + 1}")


def _load_decision(body: bytes | str, key: Key | None) -> Decision | None:
    try:
        decision = serialization.load_decision(body)
    except WireError as error:
        log.warning("a decision in the store of torch.distributed is skipped: %s", error)
        return None
    return decision if key in (None, decision.key) else None
