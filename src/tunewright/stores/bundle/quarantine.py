"""Quarantine: entries of a bundle that were found bad on this machine and are skipped here."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tunewright.errors import StoreError, WireError
from tunewright.spaces.config import Config
from tunewright.stores import files, serialization
from tunewright.stores.file_lock import exclusive_lock


class QuarantinedEntry(msgspec.Struct, frozen=True):
    """An entry in quarantine: its config, the reason, and since when."""

    config: Config
    reason: str
    when: str = ""


class Quarantine:
    """The entries of one bundle that are skipped on this machine: a readable file beside the cache.

    The bundle itself never changes. What is bad here may be good elsewhere.
    """

    def __init__(self, cache: Path, bundle: str) -> None:
        self.path = cache / "quarantine" / f"{bundle}.json"

    def entries(self) -> Mapping[str, QuarantinedEntry]:
        """Returns all entries, by the digests of their keys."""
        try:
            return serialization.decode(self.path.read_bytes(), dict[str, QuarantinedEntry])
        except FileNotFoundError:
            return {}
        except (OSError, WireError) as error:
            # Do not treat it as empty: its entries may compute wrong results.
            raise StoreError(
                f"the quarantine {self.path} cannot be read: {error}; "
                "remove it, and fill it again with `tunewright bundle verify --here`"
            ) from error

    def add(self, digest: str, config: Config, reason: str) -> None:
        """Skips the entry for a key from now on."""
        with exclusive_lock(self.path.with_suffix(".lock")):
            entry = QuarantinedEntry(config, reason, datetime.now(UTC).isoformat(timespec="seconds"))
            self._write({**self.entries(), digest: entry})

    def _write(self, entries: Mapping[str, QuarantinedEntry]) -> None:
        try:
            files.write_atomic(self.path, serialization.encode(entries), durable=True)
        except OSError as error:
            raise StoreError(f"the quarantine {self.path} cannot be written: {error}; set another cache") from error
