"""Optional capabilities of a store, beyond keeping decisions and trials; test for them with `isinstance`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.stores.artifacts import ArtifactLabel
from tunewright.stores.statistics import MissRecord, RetentionLimits, Revision, StoreStats, TrialCount


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
class SupportsQuarantine(Protocol):
    """Cannot be changed, but can skip entries that were found bad on this machine."""

    def apply_quarantine(self, cache: Path) -> None:
        """Skips the entries that the quarantine in this cache lists, from now on."""
        ...


@runtime_checkable
class SupportsFill(Protocol):
    """Can cache the answers of slower stores."""

    def fill(self, decisions: Sequence[Decision]) -> None:
        """Copies decisions of a slower store, in one write; existing ones are replaced."""
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
