"""What it costs to wait for the disk: a publication as the service makes it, and the same without waiting."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from figures import Paired
from power_paths import ORIGIN, decision

from tunewright.service.publishing import Publisher
from tunewright.service.storage import ServiceStorage
from tunewright.stores.circuit_breaker import CircuitBreakerStore
from tunewright.stores.sqlite import SqliteStore


def publish_costs(count: int) -> Paired:
    """Milliseconds of one publication, with the decision and its audit entry: synced, and not; in turn, on the disk."""
    with tempfile.TemporaryDirectory() as folder:
        synced = ServiceStorage(str(Path(folder) / "synced.sqlite"))
        relaxed = ServiceStorage(str(Path(folder) / "relaxed.sqlite"))
        relaxed.primary = CircuitBreakerStore(SqliteStore(Path(folder) / "relaxed.sqlite"))
        publishers = [Publisher(synced), Publisher(relaxed)]
        return Paired.of(_publish_both(publishers, number) for number in range(count))


def _publish_both(publishers: list[Publisher], number: int) -> tuple[float, float]:
    times = [0.0, 0.0]
    for which in (0, 1) if number % 2 else (1, 0):
        began = time.perf_counter()
        publishers[which].publish(decision(number), None, ORIGIN)
        times[which] = 1e3 * (time.perf_counter() - began)
    return times[0], times[1]
