"""The Store protocol: keeps decisions and the trials behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial


class Store(Protocol):
    """A write that returns is durable, even if the process dies right after. Raises only StoreError."""

    def get(self, key: Key) -> Decision | None:
        """Returns the decision for exactly this key."""
        ...

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """Returns the decisions that exist for `keys`, in as few round trips as possible."""
        ...

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Stores `decision`; without `replace`, only if its key has none. Returns the decision now stored."""
        ...

    def relatives(self, key: Key, limit: int = 1000) -> Iterator[Decision]:
        """Yields up to `limit` decisions of related keys: other sizes, or another device of the same architecture."""
        ...

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """Yields all decisions, or those of one kernel."""
        ...

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Appends trials to the journal of a key: all of them, or none."""
        ...

    def trials(self, key: Key) -> Iterator[Trial]:
        """Yields the journal of a key in the order recorded."""
        ...

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Yields the keys that have a decision or a trial."""
        ...
