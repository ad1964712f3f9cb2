"""Shown: the bundles that a service keeps, as its dashboard shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from tunewright.errors import StoreError
from tunewright.model.decision import Decision
from tunewright.service.archive import Archive
from tunewright.service.bundles import LISTED, SHELF, Listed, named, opened
from tunewright.sharing import wire
from tunewright.stores.bundle import BundleStore

MOST_OPEN = 2
"""Bundles that are kept open at once."""


class Shown:
    """A bundle of which the list is enough for most; it is opened for what is in it."""

    def __init__(self, listed: Listed, gallery: Gallery) -> None:
        self._listed, self._gallery = listed, gallery
        self.path, self.digest, self.signer = Path(f"{listed.digest[:12]}.bundle"), listed.digest, listed.signer or None

    @cached_property
    def manifest(self) -> Any:
        """What it says of itself."""
        return self._listed.manifest or self._whole.manifest

    @property
    def enclosures(self) -> Mapping[tuple[str, str], Any]:
        """What comes along, by kind and name."""
        return self._whole.enclosures

    def decisions(self, kernel: str | None = None) -> Iterable[Decision]:
        """What it decides."""
        return self._whole.decisions(kernel)

    @property
    def _whole(self) -> BundleStore:
        return self._gallery.open(self.digest, self._listed.signer)


class Gallery:
    """All bundles that a service keeps."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.open = lru_cache(MOST_OPEN)(self._open)

    def __call__(self) -> Sequence[Shown]:
        """Those there are now."""
        return [Shown(wire.decode(body, Listed), self) for _, body in self._archive.truth.entries(LISTED)]

    def _open(self, digest: str, signer: str) -> BundleStore:
        body: bytes | None = self._archive.truth.fetch(SHELF, [digest]).get(digest)
        if body is None or named(body) != digest:
            raise StoreError(f"the bundle {digest[:12]} is damaged where it lies, or gone")
        return opened(digest, body, signer)
