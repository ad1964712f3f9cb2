"""Counts the calls of kernels that have no decision, so that the store lists what is worth tuning."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from threading import Lock
from time import perf_counter
from typing import Any

import msgspec

from tunewright.errors import StoreError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.key import Key
from tunewright.ports.store import Store
from tunewright.stores.capabilities import RecordsMisses
from tunewright.stores.statistics import MissRecord

log = LazyLogger(__name__)

FLUSH_SECONDS = 30.0
"""Seconds after which the next call writes the counts to the store; they are also written at exit."""


class MissRecorder:
    """Calls and seconds by key, added to the misses of the store now and then.

    Concurrent threads may lose a count. An asynchronous launch is timed until it returns.
    """

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._misses: dict[Key, MissRecord] = {}
        self._totals: dict[Key, list[float]] = {}
        self._lock = Lock()
        self._flushed = perf_counter()

    def count_calls(self, miss: MissRecord, launch: Callable[..., Any]) -> Callable[..., Any]:
        """Returns `launch` with its calls counted and timed."""
        if not self._misses:
            atexit.register(_flush, weakref.ref(self))
        with self._lock:
            self._misses[miss.key] = miss
            total = self._totals.setdefault(miss.key, [0.0, 0.0])

        def counted(*args: Any) -> Any:
            began = perf_counter()
            result = launch(*args)
            ended = perf_counter()
            total[0] += 1
            total[1] += ended - began
            if ended - self._flushed > FLUSH_SECONDS:
                self.flush()
            return result

        return counted

    def flush(self) -> int:
        """Adds the counts since the last flush to the store and returns the number of keys."""
        with self._lock:
            self._flushed = perf_counter()
            misses = [
                msgspec.structs.replace(self._misses[key], calls=int(total[0]), seconds=total[1])
                for key, total in self._totals.items()
                if total[0]
            ]
            store = self._store()
            if not misses or not isinstance(store, RecordsMisses):
                return 0
            try:
                store.record_misses(misses)
            except StoreError as error:
                log.warning("cannot record the calls of untuned kernels: %s", error)
                return 0
            for miss in misses:
                total = self._totals[miss.key]
                total[0] -= miss.calls
                total[1] -= miss.seconds
            return len(misses)


def _flush(reference: weakref.ref[MissRecorder]) -> None:
    if (recorder := reference()) is not None:
        recorder.flush()
