"""A store among the ranks of one job, on the key-value store that torch.distributed brings; gone with the job."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from tunewright.errors import StoreError, WireError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.remarks import Remarks
from tunewright.sharing import wire

log = Remarks(__name__)

SECONDS = 10.0
"""How long one question may take; the ranks' own store waits for minutes where nothing else is said."""


class RankStore:
    """Decisions that ranks of one job agree on, without a server of ours and without collective calls.

    Ranks may miss keys in any order, and a rank that dies holds up nobody: there is no collective to wait in. The
    host of the job's own store (torchrun's agent, or the first rank) must live; without it every question is a
    StoreError within seconds.
    """

    def __init__(self, store: Any, seconds: float = SECONDS) -> None:
        from datetime import timedelta  # noqa: PLC0415 - only torch wants one

        from torch.distributed import PrefixStore  # noqa: PLC0415 - heavy, and only for ranks

        self._store = PrefixStore("tunewright", store.clone() if hasattr(store, "clone") else store)
        self._store.set_timeout(timedelta(seconds=seconds))
        self._lock = Lock()
        self._leases: dict[str, tuple[str, float]] = {}

    @classmethod
    def at(cls, location: str) -> RankStore:
        """The store of the default process group, at `torch:`."""
        from torch import distributed  # noqa: PLC0415 - heavy, and only for ranks
        from torch.distributed.distributed_c10d import _get_default_store  # noqa: PLC0415 - there is no public way

        if not distributed.is_available() or not distributed.is_initialized():
            raise StoreError(f"{location} needs torch.distributed: call init_process_group first")
        return cls(_get_default_store(), SECONDS)

    @contextmanager
    def _asked(self) -> Iterator[Any]:
        """The ranks' store, one question at a time; its errors become StoreErrors."""
        try:
            with self._lock:
                yield self._store
        except RuntimeError as error:  # what torch's errors derive from
            raise StoreError(f"the ranks' own store does not answer: {str(error).splitlines()[0]}") from error

    def get(self, key: Key) -> Decision | None:
        """The decision for exactly this key."""
        with self._asked() as store:
            if not store.check([key.digest]):
                return None
            body = store.get(key.digest)
        return _believed(body, key)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """The decisions there are for `keys`, in two round trips."""
        wanted = {key.digest: key for key in keys}
        listed = [digest for digest in self._index("decisions") if digest in wanted]
        return {decision.key: decision for decision in self._read(listed) if decision.key.digest in wanted}

    def _read(self, digests: Sequence[str]) -> list[Decision]:
        if not digests:
            return []
        with self._asked() as store:
            bodies = store.multi_get(list(digests))
        return [decision for body in bodies if (decision := _believed(body, None)) is not None]

    def _index(self, name: str) -> list[str]:
        """What was noted under a name, each once."""
        with self._asked() as store:
            text = store.get(name).decode() if store.check([name]) else ""
        return list(dict.fromkeys(text.split("\n")[:-1]))

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Keep `decision`, and return the one that stands."""
        digest, body = decision.key.digest, wire.dump_decision(decision).decode()
        with self._asked() as store:
            if replace:
                store.set(digest, body)
                standing = body
            else:
                standing = store.compare_set(digest, "", body).decode()
            store.append("decisions", f"{digest}\n")
        return decision if standing == body else _believed(standing, decision.key) or self.put(decision)

    def relatives(self, key: Key, most: int = 1000) -> Iterator[Decision]:
        """Decisions of the same kin."""
        found = [decision for decision in self.decisions(key.kernel) if decision.key.kin == key.kin]
        return iter(found[:most])

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """All decisions, or those of one kernel."""
        return (d for d in self._read(self._index("decisions")) if kernel in (None, d.key.kernel))

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Append trials to the journal of a key."""
        lines = "".join(f"{wire.dump_trial(trial).decode()}\n" for trial in trials)
        with self._asked() as store:
            store.append("journals", f"{wire.dump_key(key).decode()}\n")
            store.append(f"trials of {key.digest}", lines)

    def trials(self, key: Key) -> Iterator[Trial]:
        """The journal of a key."""
        name = f"trials of {key.digest}"
        with self._asked() as store:
            text = store.get(name).decode() if store.check([name]) else ""
        return iter([wire.load_trial(line) for line in text.splitlines()])

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Keys that have a decision or a trial."""
        known = [decision.key for decision in self.decisions(kernel)]
        recorded = [wire.load_key(line) for line in self._index("journals")]
        return (key for key in dict.fromkeys([*known, *recorded]) if kernel in (None, key.kernel))

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Take the lease, or renew it.

        Hosts' clocks differ, so that a lease has ended for whoever has watched it unchanged for as long as it lasts.
        """
        place, now = f"lease {name}", time.monotonic()
        with self._asked() as store:
            held = store.get(place).decode() if store.check([place]) else ""
            holder, lasts, turn = held.split("\n") if held else ("", "0", "0")
            seen, since = self._leases.get(name, ("", now))
            if held != seen:
                self._leases[name] = held, (since := now)
            if holder not in ("", owner) and now - since < float(lasts):
                return False
            mine = f"{owner}\n{seconds}\n{int(turn) + 1}"
            got = bool(store.compare_set(place, held, mine).decode() == mine)
        if got:
            self._leases[name] = mine, now
        return got

    def release(self, name: str, owner: str) -> None:
        """Give the lease back."""
        place = f"lease {name}"
        with self._asked() as store:
            held = store.get(place).decode() if store.check([place]) else ""
            holder, _, turn = held.split("\n") if held else ("", "0", "0")
            if holder == owner:
                store.compare_set(place, held, f"\n0\n{int(turn) + 1}")


def _believed(body: bytes | str, key: Key | None) -> Decision | None:
    try:
        decision = wire.load_decision(body)
    except WireError as error:
        log.warning("a decision among the ranks is passed over: %s", error)
        return None
    return decision if key in (None, decision.key) else None
