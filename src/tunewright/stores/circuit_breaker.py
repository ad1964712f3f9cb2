"""Circuit breaker: a store that fails is not called for a while, so that its time-out delays nobody."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from tunewright.errors import StoreError, WriteRefused
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.ports.store import Store
from tunewright.stores.capabilities import (
    CountsTrials,
    KeepsLogs,
    KeepsNamespaces,
    KeepsRevisions,
    RecordsMisses,
    SupportsFill,
    SupportsLeases,
    SupportsMaintenance,
)

T = TypeVar("T")

MIN_PAUSE, MAX_PAUSE = 1.0, 60.0
"""Seconds that a store is not called after its first failure, and after many in a row."""

PAUSE_FACTOR = 4
"""The pause is at least this many times as long as the failed call: a dead store takes a fifth of the time."""


def method_names(capability: type) -> tuple[str, ...]:
    """Returns the names of the methods of a capability."""
    return tuple(name for name in vars(capability) if not name.startswith("_"))


CAPABILITY_METHODS = {
    capability: method_names(capability)
    for capability in (
        SupportsLeases,
        RecordsMisses,
        KeepsRevisions,
        KeepsNamespaces,
        KeepsLogs,
        CountsTrials,
        SupportsMaintenance,
        SupportsFill,
    )
}
"""The optional capabilities that wrappers of a store hand on, and their methods."""

_NO_ITERATOR, _END = object(), object()


class CircuitBreaker:
    """Lets calls through until one fails; then none for a pause, then one at a time until one succeeds.

    The pause doubles with each failure in a row, up to `max_pause`, and is longer after a long time-out. Threads may
    share it. `clock` returns seconds.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic, max_pause: float = MAX_PAUSE) -> None:
        self._name, self._clock, self._max_pause = name, clock, max_pause
        self._lock = Lock()
        self._pause = 0.0  # 0: closed, all calls go through
        self._open_until = 0.0
        self._failures = 0
        self._probing = False
        self._reason: StoreError | None = None

    def call(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Returns the result of `function`; raises StoreError at once while the breaker is open."""
        epoch, began = self._enter(), self._clock()
        try:
            result = function(*args, **options)
        except WriteRefused:
            self._succeeded(epoch)  # it answered: refused is not unreachable
            raise
        except StoreError as error:
            self._failed(epoch, error, self._clock() - began)
            raise
        except BaseException:
            self._aborted(epoch)
            raise
        self._succeeded(epoch)
        return result

    def _enter(self) -> int:
        """Returns the number of failures so far, as an epoch; raises StoreError if no call may begin now."""
        with self._lock:
            if self._pause:
                left = self._open_until - self._clock()
                if left > 0:
                    raise StoreError(f"{self._name} is not called for {left:.3g} s after: {self._reason}")
                if self._probing:
                    raise StoreError(f"{self._name} is not called while another call probes it, after: {self._reason}")
                self._probing = True
            return self._failures

    def _failed(self, epoch: int, error: StoreError, seconds: float) -> None:
        with self._lock:
            # Many calls may be under way when a server dies. Only the first to fail counts.
            if epoch == self._failures:
                self._failures += 1
                self._pause = min(max(MIN_PAUSE, PAUSE_FACTOR * seconds, 2 * self._pause), self._max_pause)
                self._open_until = self._clock() + self._pause
                self._probing, self._reason = False, error

    def _succeeded(self, epoch: int) -> None:
        with self._lock:
            # A call that began before the last failure may also have been answered before it.
            if epoch == self._failures:
                self._pause, self._probing, self._reason = 0.0, False, None

    def _aborted(self, epoch: int) -> None:
        """Handles a call that says nothing about the store: it was interrupted, or had invalid arguments."""
        with self._lock:
            if epoch == self._failures:
                self._probing = False


class CircuitBreakerStore:
    """Any store, behind a circuit breaker. It has the capabilities of that store."""

    def __init__(
        self, store: Store, *, clock: Callable[[], float] = time.monotonic, max_pause: float = MAX_PAUSE
    ) -> None:
        self._store = store
        self._breaker = CircuitBreaker(getattr(store, "location", type(store).__name__), clock, max_pause)
        for capability, methods in CAPABILITY_METHODS.items():
            if isinstance(store, capability):
                # Set on the object: in the class, `isinstance` would find them whatever the store has.
                for method in methods:
                    setattr(self, method, partial(self._call, method))

    def _call(self, method: str, *args: Any, **options: Any) -> Any:
        """Calls a method of the store; each item of an iterator counts as a call."""
        result, first = self._breaker.call(self._start, method, *args, **options)
        return result if first is _NO_ITERATOR else self._items(first, result)

    def _start(self, method: str, *args: Any, **options: Any) -> tuple[Any, Any]:
        """Returns a result and the first item of an iterator: often the store is called only for that."""
        result = getattr(self._store, method)(*args, **options)
        return result, next(result, _END) if isinstance(result, Iterator) else _NO_ITERATOR

    def _items(self, item: Any, iterator: Iterator[Any]) -> Iterator[Any]:
        while item is not _END:
            yield item
            item = self._breaker.call(next, iterator, _END)

    def get(self, key: Key) -> Decision | None:
        """Returns the decision for exactly this key."""
        return self._breaker.call(self._store.get, key)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """Returns the decisions that exist for `keys`."""
        return self._breaker.call(self._store.get_many, keys)

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Stores `decision` and returns the one now stored."""
        return self._breaker.call(self._store.put, decision, replace=replace)

    def relatives(self, key: Key, limit: int = 1000) -> Iterator[Decision]:
        """Yields up to `limit` decisions of related keys."""
        decisions: Iterator[Decision] = self._call("relatives", key, limit)
        return decisions

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """Yields all decisions, or those of one kernel."""
        decisions: Iterator[Decision] = self._call("decisions", kernel)
        return decisions

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Appends trials to the journal of a key."""
        self._breaker.call(self._store.record, key, trials)

    def trials(self, key: Key) -> Iterator[Trial]:
        """Yields the journal of a key."""
        trials: Iterator[Trial] = self._call("trials", key)
        return trials

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Yields the keys that have a decision or a trial."""
        keys: Iterator[Key] = self._call("keys", kernel)
        return keys
