"""Offers: what a store may do beyond keeping decisions and trials; whoever needs one asks with `isinstance`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.sharing.artefacts import Label
from tunewright.sharing.records import Bounds, Generation, Stats, Tally, Want


@runtime_checkable
class Leases(Protocol):
    """Rights that one owner at a time holds, each for a while by the store's own clock. Raises only StoreError."""

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Take the lease `name`, or renew it; False while another owner holds it."""
        ...

    def release(self, name: str, owner: str) -> None:
        """Give the lease back, if `owner` still holds it."""
        ...


@runtime_checkable
class Agreement(Protocol):
    """One answer for all who share a store, also where nothing is decided."""

    def settle(self, key: Key, answer: Decision) -> Decision:
        """The answer to `key` that all give: the first that any of them gave."""
        ...


@runtime_checkable
class Wants(Protocol):
    """The list of keys that were asked for and had no decision."""

    def want(self, wants: Sequence[Want]) -> None:
        """Add the calls and seconds of each to what is known of its key."""
        ...

    def wanted(self, kernel: str | None = None) -> Iterator[Want]:
        """What is still undecided, most seconds first."""
        ...


@runtime_checkable
class Tallies(Protocol):
    """How many trials there are, counted where they lie: nobody reads a million journals' worth to say so."""

    def tallies(self) -> Iterator[Tally]:
        """One for each key that has trials, in no order."""
        ...


@runtime_checkable
class Generations(Protocol):
    """Every decision that ever stood."""

    def history(self, key: Key) -> Sequence[Generation]:
        """What stood for a key, oldest first; the last one stands. To go back, put an earlier one again."""
        ...


@runtime_checkable
class Owing(Protocol):
    """What was kept here while a remote store was away."""

    def send(self) -> int:
        """Send it on; how much that was. A StoreError if the remote is still away."""
        ...


@runtime_checkable
class Heeding(Protocol):
    """What cannot be changed, but can be passed over where it was found bad on this machine."""

    def heed(self, cache: Path) -> None:
        """From now on pass over what the quarantine in this cache holds."""
        ...


@runtime_checkable
class Cache(Protocol):
    """Room for what farther stores know."""

    def fill(self, decisions: Sequence[Decision]) -> None:
        """Take over what a farther store answered, in one write; what stands is replaced."""
        ...


@runtime_checkable
class Shelves(Protocol):
    """Named bytes on shelves, for whatever else is worth remembering. A shelf is cleared as a whole."""

    def fetch(self, shelf: str, names: Sequence[str]) -> dict[str, bytes]:
        """What there is under `names` and has not expired."""
        ...

    def keep(self, shelf: str, name: str, body: bytes, *, seconds: float | None = None, replace: bool = True) -> bytes:
        """Keep `body`, for that long; without `replace`, only if there is nothing. Returns what stands."""
        ...

    def entries(self, shelf: str) -> Iterator[tuple[str, bytes]]:
        """Everything on a shelf, oldest first."""
        ...

    def clear(self, shelf: str, *, most: int = 0) -> int:
        """Drop the oldest entries until at most `most` are left; how many went."""
        ...


@runtime_checkable
class Brings(Protocol):
    """What comes along with decisions."""

    def enclosed(self, kind: str, name: str) -> bytes | None:
        """What is enclosed under that name: a `build` by its artefact's, a `race` by its key's digest."""
        ...

    def builds(self, kernel: str) -> Sequence[Label]:
        """What is built for a kernel."""
        ...


@runtime_checkable
class Upkeep(Protocol):
    """Looking after a store that lives long."""

    def stats(self) -> Stats:
        """How much is kept."""
        ...

    def trim(self, bounds: Bounds) -> Stats:
        """Drop what is beyond `bounds`, oldest first, while others read and write; what went."""
        ...

    def faults(self) -> Iterator[str]:
        """Every record that cannot be believed, in a sentence each; it is a miss to everyone who reads."""
        ...
