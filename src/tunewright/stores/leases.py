"""Leases: exclusive rights among the processes that share a store, renewed while their holder is alive."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from contextlib import suppress

from tunewright.errors import StoreError
from tunewright.lazy_logging import LazyLogger
from tunewright.stores.capabilities import SupportsLeases

log = LazyLogger(__name__)


class Lease:
    """A named lease, held by at most one process of all that share a store."""

    def __init__(self, store: SupportsLeases, name: str, seconds: float) -> None:
        self.store, self.name, self.seconds = store, name, seconds
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"
        self._lock, self._is_live = threading.Lock(), True

    def claim(self) -> bool:
        """Acquires or renews the lease; returns False while another owner holds it. Raises StoreError."""
        return self.store.claim(self.name, self.owner, self.seconds)

    def keep_alive(self) -> None:
        """Renews the lease in the background until `stop_renewing` or `release`."""
        _renewer.add(self)

    def stop_renewing(self) -> None:
        """Lets the lease expire."""
        _renewer.remove(self)

    def renew(self) -> None:
        """Renews the lease unless it was released."""
        with self._lock, suppress(StoreError):  # the store may answer again at the next renewal
            if self._is_live and not self.claim():
                log.warning("%s: another process took over the lease, which was not renewed in time", self.name)
                self.stop_renewing()

    def release(self) -> None:
        """Releases the lease for others."""
        self.stop_renewing()
        with self._lock, suppress(StoreError):  # if the store fails, the lease expires
            self._is_live = False
            self.store.release(self.name, self.owner)


class LeaseRenewer:
    """Renews the leases of this process, in a thread that runs while there are any."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets all leases: a forked child has none of its parent's threads."""
        self._changed = threading.Condition()
        self._due: dict[Lease, float] = {}
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    def add(self, lease: Lease) -> None:
        """Renews a lease, three times in its duration, until it is removed."""
        with self._changed:
            due = self._due[lease] = time.monotonic() + lease.seconds / 3
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tunewright leases", daemon=True)
                self._thread.start()
            elif due < self._wakes_at:
                self._changed.notify()

    def remove(self, lease: Lease) -> None:
        """Stops renewing a lease."""
        with self._changed:
            self._due.pop(lease, None)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._due:
                    self._thread = None
                    return
                self._wakes_at = min(self._due.values())
                self._changed.wait(max(0.0, self._wakes_at - time.monotonic()))
                now = time.monotonic()
                due = [lease for lease, at in self._due.items() if at <= now]
                self._due |= {lease: now + lease.seconds / 3 for lease in due}
            for lease in due:
                lease.renew()


_renewer = LeaseRenewer()


os.register_at_fork(after_in_child=_renewer.reset)
