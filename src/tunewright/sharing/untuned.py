"""Untuned: what is called without a decision, and for how long: the list that is worth tuning."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from threading import Lock
from time import perf_counter
from typing import Any

import msgspec

from tunewright.errors import StoreError
from tunewright.model.key import Key
from tunewright.ports.store import Store
from tunewright.remarks import Remarks
from tunewright.sharing.offers import Wants
from tunewright.sharing.records import Want

log = Remarks(__name__)

EVERY = 30.0
"""Seconds after which what was counted is written, by the next call; and at the end of the process."""


class Untuned:
    """Calls and seconds by key, added to the store's list of wants now and then.

    Threads that call at once may lose a count; a launch that returns before its kernel is done counts as a launch.
    """

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._wants: dict[Key, Want] = {}
        self._cells: dict[Key, list[float]] = {}
        self._lock = Lock()
        self._written = perf_counter()

    def watched(self, want: Want, launch: Callable[..., Any]) -> Callable[..., Any]:
        """`launch`, with its calls counted and timed."""
        if not self._wants:
            atexit.register(_write, weakref.ref(self))
        with self._lock:
            self._wants[want.key] = want
            cell = self._cells.setdefault(want.key, [0.0, 0.0])

        def counted(*args: Any) -> Any:
            began = perf_counter()
            result = launch(*args)
            ended = perf_counter()
            cell[0] += 1
            cell[1] += ended - began
            if ended - self._written > EVERY:
                self.write()
            return result

        return counted

    def write(self) -> int:
        """Add what was counted since the last time to the store; how many keys that were."""
        with self._lock:
            self._written = perf_counter()
            found = [
                msgspec.structs.replace(self._wants[key], calls=int(cell[0]), seconds=cell[1])
                for key, cell in self._cells.items()
                if cell[0]
            ]
            store = self._store()
            if not found or not isinstance(store, Wants):
                return 0
            try:
                store.want(found)
            except StoreError as error:
                log.warning("what is not tuned yet is not recorded: %s", error)
                return 0
            for want in found:
                cell = self._cells[want.key]
                cell[0] -= want.calls
                cell[1] -= want.seconds
            return len(found)


def _write(reference: weakref.ref[Untuned]) -> None:
    if (untuned := reference()) is not None:
        untuned.write()
