"""Single flight: of many processes that miss one key at once, one does the work and the others take its result."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from tunewright.errors import StoreError
from tunewright.lazy_logging import LazyLogger
from tunewright.stores.capabilities import SupportsLeases
from tunewright.stores.leases import Lease

log = LazyLogger(__name__)

T = TypeVar("T")

LEASE = 10.0
"""Seconds after which another process takes over from a leader that stopped renewing its lease."""

MIN_PAUSE, MAX_PAUSE = 0.02, 1.0
"""Seconds between two checks for a published result."""


class SingleFlight:
    """Elects a leader by a lease: `run` does the work if it leads, and otherwise waits for the leader's result.

    It cannot hang: a leader that dies is replaced within the lease, a store that cannot grant leases makes everybody
    lead, and a process that has waited `max_wait` seconds goes on without. There may be two leaders, if one was
    believed dead or both are cut off; the store resolves that, since the first published decision wins.
    """

    def __init__(self, leases: object, name: str, *, max_wait: float, lease_seconds: float | None = None) -> None:
        seconds = LEASE if lease_seconds is None else lease_seconds
        self._lease = Lease(leases, name, seconds) if isinstance(leases, SupportsLeases) else None
        self._name, self._max_wait = name, max_wait

    def run(self, work: Callable[[], T], published: Callable[[], T | None]) -> T | None:
        """Returns the result of `work`, or what another leader published; None if that takes too long."""
        began, pause, waited = time.monotonic(), MIN_PAUSE, False
        while True:
            if self._claim():
                return self._lead(work, published)
            if (result := published()) is not None:
                return result
            if time.monotonic() - began > self._max_wait:
                return None
            if not waited:
                log.info("%s: waiting for another process that works on it", self._name)
                waited = True
            # Jitter: processes that started together must not poll together.
            time.sleep(pause * random.uniform(0.7, 1.3))
            pause = min(1.4 * pause, MAX_PAUSE)

    def _claim(self) -> bool:
        try:
            return self._lease is None or self._lease.claim()
        except StoreError as error:
            log.warning("%s: going on without a lease: %s", self._name, error)
            return True

    def _lead(self, work: Callable[[], T], published: Callable[[], T | None]) -> T:
        """Does the work, unless another leader finished between the miss and the lease."""
        if self._lease is None:
            return work()
        self._lease.keep_alive()
        try:
            result = published()
            return work() if result is None else result
        finally:
            self._lease.release()
