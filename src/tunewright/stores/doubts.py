"""Decisions of a mirror that may be older than those of the remote, since a change could not be copied."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock

from tunewright.model.key import Key


class Doubts:
    """One doubt for each change, from its begin until the local store has it or has forgotten the old decision.

    Threads may share it. A change that is under way is doubted by others, but only its own thread resolves it.
    """

    def __init__(self) -> None:
        self._keys: dict[object, Key] = {}
        self._open: set[object] = set()
        self._lock = Lock()

    def begin(self, key: Key) -> object:
        """Returns a new doubt about the decision for `key`, which is about to change."""
        doubt = object()
        with self._lock:
            self._keys[doubt] = key
            self._open.add(doubt)
        return doubt

    def end(self, doubt: object) -> None:
        """Says that a change is over; if its doubt was not resolved, anybody may do so."""
        with self._lock:
            self._open.discard(doubt)

    def resolve(self, doubts: Iterable[object]) -> None:
        """Removes doubts."""
        with self._lock:
            for doubt in doubts:
                self._keys.pop(doubt, None)

    def keys(self, apart_from: object = None) -> set[Key]:
        """Returns the keys that are doubted, by anybody but one."""
        with self._lock:
            return {key for doubt, key in self._keys.items() if doubt is not apart_from}

    def failed(self) -> dict[object, Key]:
        """Returns the doubts of changes that are over."""
        if not self._keys:
            return {}
        with self._lock:
            return {doubt: key for doubt, key in self._keys.items() if doubt not in self._open}
