"""Leases: the right to work on something, held by one process at a time and renewed while it is alive."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from contextlib import suppress

from tunewright.errors import StoreError
from tunewright.remarks import Remarks
from tunewright.sharing.offers import Leases

log = Remarks(__name__)


class Lease:
    """One right, among all processes that share a store."""

    def __init__(self, store: Leases, name: str, seconds: float) -> None:
        self.store, self.name, self.seconds = store, name, seconds
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"
        self._lock, self._is_live = threading.Lock(), True

    def claim(self) -> bool:
        """Take it; False while another holds it. Raises StoreError."""
        return self.store.claim(self.name, self.owner, self.seconds)

    def keep_alive(self) -> None:
        """Renew it from now on, until it is left or given back."""
        _pulse.hold(self)

    def leave(self) -> None:
        """Let it end by itself."""
        _pulse.drop(self)

    def renew(self) -> None:
        """Renew it, unless it was given back."""
        with self._lock, suppress(StoreError):  # the store may be back at the next beat
            if self._is_live and not self.claim():
                log.warning("%s: another process took over, since this one was silent for long", self.name)
                self.leave()

    def give_back(self) -> None:
        """Let others have it."""
        self.leave()
        with self._lock, suppress(StoreError):  # if the store fails, it ends by itself
            self._is_live = False
            self.store.release(self.name, self.owner)


class Pulse:
    """The thread that renews the leases held in this process; it comes with the first, and goes with the last."""

    def __init__(self) -> None:
        self.start_anew()

    def start_anew(self) -> None:
        """Hold nothing, as in a forked child, which has none of its parent's threads."""
        self._changed = threading.Condition()
        self._due: dict[Lease, float] = {}
        self._thread: threading.Thread | None = None
        self._wakes = 0.0

    def hold(self, lease: Lease) -> None:
        """Renew a lease, three times in its life, until it is dropped."""
        with self._changed:
            due = self._due[lease] = time.monotonic() + lease.seconds / 3
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="tunewright leases", daemon=True)
                self._thread.start()
            elif due < self._wakes:
                self._changed.notify()

    def drop(self, lease: Lease) -> None:
        """Renew a lease no more."""
        with self._changed:
            self._due.pop(lease, None)

    def _beat(self) -> None:
        while True:
            with self._changed:
                if not self._due:
                    self._thread = None
                    return
                self._wakes = min(self._due.values())
                self._changed.wait(max(0.0, self._wakes - time.monotonic()))
                now = time.monotonic()
                due = [lease for lease, at in self._due.items() if at <= now]
                self._due |= {lease: now + lease.seconds / 3 for lease in due}
            for lease in due:
                lease.renew()


_pulse = Pulse()


os.register_at_fork(after_in_child=_pulse.start_anew)
