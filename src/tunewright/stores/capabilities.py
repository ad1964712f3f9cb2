"""Optional capabilities of a store, beyond keeping decisions and trials; test for them with `isinstance`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.ports.store import Store
from tunewright.stores.artifacts import ArtifactLabel
from tunewright.stores.statistics import (
    LogEntry,
    MissRecord,
    RefusedWrite,
    RetentionLimits,
    Revision,
    StoreStats,
    TrialCount,
)

FillToken = dict[str, object]
"""The version of each decision in a cache, by the digest of its key; a key that is not listed was absent."""

CHANGING = object()
"""The version of a decision that another process changes right now: it cannot be filled."""


@runtime_checkable
class SupportsLeases(Protocol):
    """Grants named leases, each to one owner at a time, timed by the store's own clock. Raises only StoreError."""

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Acquires or renews the lease `name`; returns False while another owner holds it."""
        ...

    def release(self, name: str, owner: str) -> None:
        """Releases the lease if `owner` still holds it."""
        ...


@runtime_checkable
class SupportsConsensus(Protocol):
    """Gives all processes that share a store the same answer, even where nothing is decided."""

    def agree_on(self, key: Key, answer: Decision) -> Decision:
        """Returns the answer that all processes use for `key`: the first that any of them proposed."""
        ...


@runtime_checkable
class RecordsMisses(Protocol):
    """Keeps a list of the keys that were looked up and had no decision."""

    def record_misses(self, misses: Sequence[MissRecord]) -> None:
        """Adds the calls and seconds of each miss to the totals of its key."""
        ...

    def misses(self, kernel: str | None = None) -> Iterator[MissRecord]:
        """Yields the keys that are still undecided, most seconds first."""
        ...


@runtime_checkable
class CountsTrials(Protocol):
    """Counts trials in the store itself, without reading the journals."""

    def trial_counts(self) -> Iterator[TrialCount]:
        """Yields one count for each key that has trials, in no particular order."""
        ...


@runtime_checkable
class KeepsRevisions(Protocol):
    """Keeps every decision that was ever current."""

    def history(self, key: Key) -> Sequence[Revision]:
        """Returns the revisions of a key, oldest first; the last is current. To roll back, put an earlier one again."""
        ...


@runtime_checkable
class HasPendingWrites(Protocol):
    """Keeps writes locally while a remote store is unreachable."""

    def send_pending(self) -> int:
        """Sends the pending writes and returns their number; raises StoreError if the remote is still unreachable."""
        ...


@runtime_checkable
class HasRefusedWrites(Protocol):
    """Keeps the last writes that a remote store refused, so that somebody can look at them."""

    def refused_writes(self) -> list[RefusedWrite]:
        """Returns the writes that were refused, oldest first."""
        ...

    def drop_refused(self) -> int:
        """Forgets them, and returns their number."""
        ...

    def retry_refused(self) -> int:
        """Makes them pending writes again, as after a token got more rights; returns their number."""
        ...


@runtime_checkable
class SupportsQuarantine(Protocol):
    """Cannot be changed, but can skip entries that were found bad on this machine."""

    def apply_quarantine(self, cache: Path) -> None:
        """Skips the entries that the quarantine in this cache lists, from now on."""
        ...


@runtime_checkable
class HasReleases(Protocol):
    """Has releases of which an older one may be offered in place of the latest."""

    def require_fresh(self, cache: Path) -> None:
        """Raises StoreError if what is offered is older than what this machine has seen, and remembers it if not."""
        ...


@runtime_checkable
class SupportsFill(Protocol):
    """Can cache the answers of slower stores, and never takes an old answer for a new one.

    Whoever copies an answer takes a token first, then reads the slower store, then fills. Whoever changes a decision
    forgets it here first, then changes it in the slower store, then fills with the token of `forget`.
    """

    def fill_token(self, keys: Sequence[Key]) -> FillToken:
        """Returns the versions of the decisions that are here now; take it before the slower store is read."""
        ...

    def forget(self, keys: Sequence[Key], seconds: float) -> FillToken:
        """Removes decisions that are about to change; for `seconds`, only the returned token can fill them."""
        ...

    def fill(self, decisions: Sequence[Decision], token: FillToken | None = None) -> int:
        """Copies decisions of a slower store, in one write, and returns how many are copied or were here already.

        With a token, a decision that changed here since it was taken is left alone; without one, all are replaced.
        """
        ...


@runtime_checkable
class KeepsNamespaces(Protocol):
    """Keeps named bytes in namespaces, for anything else worth storing."""

    def fetch(self, namespace: str, names: Sequence[str]) -> dict[str, bytes]:
        """Returns the entries under `names` that exist and have not expired."""
        ...

    def keep(
        self, namespace: str, name: str, body: bytes, *, seconds: float | None = None, replace: bool = True
    ) -> bytes:
        """Stores `body`, for that long; without `replace`, only if the name is free. Returns what is now stored."""
        ...

    def entries(self, namespace: str) -> Iterator[tuple[str, bytes]]:
        """Yields all entries of a namespace, oldest first."""
        ...

    def clear(self, namespace: str, *, keep: int = 0) -> int:
        """Removes all but the newest `keep` entries and returns how many were removed."""
        ...


@runtime_checkable
class KeepsLogs(Protocol):
    """Keeps logs: namespaces to which an entry is added together with the decision that it describes."""

    def put_logged(self, decision: Decision, over: Decision | None, entry: LogEntry) -> bool:
        """Stores `decision` in place of `over` and appends `entry`, both or neither.

        Returns False, and changes nothing, if another decision is current or the log ends with another entry.
        """
        ...

    def last_entry(self, log: str) -> tuple[str, bytes] | None:
        """Returns the last entry of a log as it is stored, even if it is damaged."""
        ...

    def drop_entries(self, namespace: str, names: Sequence[str]) -> None:
        """Removes the entries under `names`."""
        ...


@runtime_checkable
class SupportsSync(Protocol):
    """Acknowledges writes before they are on the disk, and can wait for it; other stores leave it to their server."""

    def sync(self) -> None:
        """Waits until a power cut loses nothing that was acknowledged so far."""
        ...


@runtime_checkable
class SupportsDurability(SupportsSync, Protocol):
    """Can do so with every write."""

    def durable(self) -> Store:
        """Returns the same store, whose acknowledged writes survive a power cut."""
        ...


@runtime_checkable
class HasArtifacts(Protocol):
    """Carries attachments along with its decisions: built artifacts, transcripts of races."""

    def read_attachment(self, kind: str, name: str) -> bytes | None:
        """Returns an attachment: a `build` by the name of its artifact, a `race` by the digest of its key."""
        ...

    def artifact_labels(self, kernel: str) -> Sequence[ArtifactLabel]:
        """Returns the labels of the artifacts built for a kernel."""
        ...


@runtime_checkable
class SupportsMaintenance(Protocol):
    """Can be measured, trimmed and verified."""

    def stats(self) -> StoreStats:
        """Returns how much is stored."""
        ...

    def trim(self, limits: RetentionLimits) -> StoreStats:
        """Removes records beyond `limits`, oldest first, while others read and write. Returns what was removed."""
        ...

    def faults(self) -> Iterator[str]:
        """Yields one sentence for each damaged record. Reads treat such records as misses."""
        ...
