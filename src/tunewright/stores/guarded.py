"""A store behind a circuit breaker: one that fails is left alone for a while, so that it costs no one its time-out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from tunewright.errors import StoreError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.ports.store import Store
from tunewright.sharing.offers import Cache, Generations, Leases, Shelves, Tallies, Upkeep, Wants

T = TypeVar("T")

FIRST, LONGEST = 1.0, 60.0
"""Seconds that a store is left alone after its first failure, and after many in a row."""

REST = 4
"""How many times as long as its first failure took it is left alone at least: a dead one takes a fifth of the time."""

OFFERS = {
    offer: tuple(name for name in vars(offer) if not name.startswith("_"))
    for offer in (Leases, Wants, Generations, Shelves, Tallies, Upkeep, Cache)
}
"""What a store may also do, and the methods it does it with."""

_WHOLE, _END = object(), object()


class Breaker:
    """Lets calls through until one fails; then none for a while, then one at a time until one succeeds.

    The while doubles with each failure in a row, up to the `longest`, and is longer after a long time-out. Threads may
    share it. `clock` counts seconds.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic, longest: float = LONGEST) -> None:
        self._name, self._clock, self._longest = name, clock, longest
        self._lock = Lock()
        self._pause = 0.0  # 0: closed, all calls go through
        self._until = 0.0
        self._breaks = 0
        self._probing = False
        self._reason: StoreError | None = None

    def call(self, what: Callable[..., T], *args: Any, **options: Any) -> T:
        """What `what` returns; a StoreError at once while the store is left alone."""
        began, at = self._enter(), self._clock()
        try:
            answer = what(*args, **options)
        except StoreError as error:
            self._failed(began, error, self._clock() - at)
            raise
        except BaseException:
            self._left(began)
            raise
        self._succeeded(began)
        return answer

    def _enter(self) -> int:
        """How often it had broken when a call began; an error if none may begin now."""
        with self._lock:
            if self._pause:
                left = self._until - self._clock()
                if left > 0:
                    raise StoreError(f"{self._name} is left alone for {left:.3g} s after: {self._reason}")
                if self._probing:
                    raise StoreError(f"{self._name} is left alone while one call probes it, after: {self._reason}")
                self._probing = True
            return self._breaks

    def _failed(self, began: int, error: StoreError, seconds: float) -> None:
        with self._lock:
            # Many calls may be under way when a server dies. The first to fail breaks; the others say nothing new.
            if began == self._breaks:
                self._breaks += 1
                self._pause = min(max(FIRST, REST * seconds, 2 * self._pause), self._longest)
                self._until = self._clock() + self._pause
                self._probing, self._reason = False, error

    def _succeeded(self, began: int) -> None:
        with self._lock:
            # Whoever began before the last break may have been answered before it, too.
            if began == self._breaks:
                self._pause, self._probing, self._reason = 0.0, False, None

    def _left(self, began: int) -> None:
        """A call ended that says nothing of the store: it was interrupted, or asked for nonsense."""
        with self._lock:
            if began == self._breaks:
                self._probing = False


class Guarded:
    """Any store, behind a breaker. It offers what that store offers, no more."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.monotonic, longest: float = LONGEST) -> None:
        self._store = store
        self._breaker = Breaker(getattr(store, "location", type(store).__name__), clock, longest)
        for offer, verbs in OFFERS.items():
            if isinstance(store, offer):
                # Set on the object, not in the class, where `isinstance` would find them whatever the store offers.
                for verb in verbs:
                    setattr(self, verb, partial(self._ask, verb))

    def _ask(self, verb: str, *args: Any, **options: Any) -> Any:
        """What the store answers; an answer in parts is guarded part by part."""
        answer, first = self._breaker.call(self._begin, verb, *args, **options)
        return answer if first is _WHOLE else self._parts(first, answer)

    def _begin(self, verb: str, *args: Any, **options: Any) -> tuple[Any, Any]:
        """An answer, with its first part if it comes in parts: often the store is asked only when that is taken."""
        answer = getattr(self._store, verb)(*args, **options)
        return answer, next(answer, _END) if isinstance(answer, Iterator) else _WHOLE

    def _parts(self, part: Any, answer: Iterator[Any]) -> Iterator[Any]:
        while part is not _END:
            yield part
            part = self._breaker.call(next, answer, _END)

    def get(self, key: Key) -> Decision | None:
        """The decision for exactly this key."""
        return self._breaker.call(self._store.get, key)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """The decisions there are for `keys`."""
        return self._breaker.call(self._store.get_many, keys)

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Keep `decision`, and return the one that stands."""
        return self._breaker.call(self._store.put, decision, replace=replace)

    def relatives(self, key: Key, most: int = 1000) -> Iterator[Decision]:
        """Decisions of the same kin."""
        found: Iterator[Decision] = self._ask("relatives", key, most)
        return found

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """All decisions, or those of one kernel."""
        found: Iterator[Decision] = self._ask("decisions", kernel)
        return found

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Append trials to the journal of a key."""
        self._breaker.call(self._store.record, key, trials)

    def trials(self, key: Key) -> Iterator[Trial]:
        """The journal of a key."""
        found: Iterator[Trial] = self._ask("trials", key)
        return found

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Keys that have a decision or a trial."""
        found: Iterator[Key] = self._ask("keys", kernel)
        return found
