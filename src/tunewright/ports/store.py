"""Store: keeps decisions, and the trials they rest on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial


class Store(Protocol):
    """What returns without an error is kept, whatever happens to the process then. Raises only StoreError."""

    def get(self, key: Key) -> Decision | None:
        """The decision for exactly this key."""
        ...

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """The decisions there are for `keys`, in as few round trips as the store can."""
        ...

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Keep `decision`; without `replace`, only if its key has none. Returns the one that stands."""
        ...

    def relatives(self, key: Key, most: int = 1000) -> Iterator[Decision]:
        """Decisions of the same kin: whose keys differ at most in sizes and in which device of one architecture."""
        ...

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """All decisions, or those of one kernel."""
        ...

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Append trials to the journal of a key: all of them, or none."""
        ...

    def trials(self, key: Key) -> Iterator[Trial]:
        """The journal of a key, in the order recorded."""
        ...

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Keys that have a decision or a trial."""
        ...
