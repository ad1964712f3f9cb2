"""Quarantine: entries of a bundle that were found bad on this machine, and are passed over here."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tunewright.errors import StoreError, WireError
from tunewright.measure.lease import lease
from tunewright.sharing import files, wire
from tunewright.spaces.config import Config


class Held(msgspec.Struct, frozen=True):
    """An entry in quarantine: its config, why it is there, and since when."""

    config: Config
    reason: str
    when: str = ""


class Quarantine:
    """The entries of one bundle that are passed over on this machine: a file beside the cache, which people can read.

    A bundle is never changed. What is found bad here may be good elsewhere.
    """

    def __init__(self, cache: Path, bundle: str) -> None:
        self.path = cache / "quarantine" / f"{bundle}.json"

    def entries(self) -> Mapping[str, Held]:
        """Everything in it, by the digest of its key."""
        try:
            return wire.decode(self.path.read_bytes(), dict[str, Held])
        except FileNotFoundError:
            return {}
        except (OSError, WireError) as error:
            # Not as if it were empty: what is in it may compute wrong results.
            raise StoreError(
                f"the quarantine {self.path} cannot be read: {error}; "
                "remove it, and fill it again with `tunewright bundle verify --here`"
            ) from error

    def add(self, digest: str, config: Config, reason: str) -> None:
        """Pass over the entry for a key from now on."""
        with lease(self.path.with_suffix(".lock")):
            held = Held(config, reason, datetime.now(UTC).isoformat(timespec="seconds"))
            self._write({**self.entries(), digest: held})

    def _write(self, entries: Mapping[str, Held]) -> None:
        try:
            files.put(self.path, wire.encode(entries))
        except OSError as error:
            raise StoreError(f"the quarantine {self.path} cannot be written: {error}; give another cache") from error
