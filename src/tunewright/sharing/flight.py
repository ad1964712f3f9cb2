"""Flight: of many processes that miss one key at once, one works on it and the others take what it publishes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from tunewright.errors import StoreError
from tunewright.remarks import Remarks
from tunewright.sharing.leases import Lease
from tunewright.sharing.offers import Leases

log = Remarks(__name__)

T = TypeVar("T")

LEASE = 10.0
"""Seconds after which another takes over from a leader that no longer renews its lease."""

SHORTEST, LONGEST = 0.02, 1.0
"""Pauses between two looks at what was published, in seconds."""


class Flight:
    """One lease: `join` leads if nobody else does, and otherwise waits for what the leader publishes.

    It cannot hang: a leader that dies is replaced within the lease, a store that cannot grant one makes everybody
    lead, and who has waited `patience` seconds goes on without. Two may lead, one of them being believed dead or
    both cut off; the store settles that, since the first published decision stands.
    """

    def __init__(self, leases: object, name: str, *, patience: float, lease: float | None = None) -> None:
        seconds = LEASE if lease is None else lease
        self._lease = Lease(leases, name, seconds) if isinstance(leases, Leases) else None
        self._name, self._patience = name, patience

    def join(self, work: Callable[[], T], published: Callable[[], T | None]) -> T | None:
        """What `work` makes, or what another leader published meanwhile; None if that takes too long."""
        began, pause, waited = time.monotonic(), SHORTEST, False
        while True:
            if self._claimed():
                return self._led(work, published)
            if (found := published()) is not None:
                return found
            if time.monotonic() - began > self._patience:
                return None
            if not waited:
                log.info("%s: another process works on it; waiting", self._name)
                waited = True
            # Waiters that started together must not ask together for ever.
            time.sleep(pause * random.uniform(0.7, 1.3))
            pause = min(1.4 * pause, LONGEST)

    def _claimed(self) -> bool:
        try:
            return self._lease is None or self._lease.claim()
        except StoreError as error:
            log.warning("%s: no lease, going on without: %s", self._name, error)
            return True

    def _led(self, work: Callable[[], T], published: Callable[[], T | None]) -> T:
        """Work, unless another leader finished between the miss and the lease."""
        if self._lease is None:
            return work()
        self._lease.keep_alive()
        try:
            found = published()
            return work() if found is None else found
        finally:
            self._lease.give_back()
