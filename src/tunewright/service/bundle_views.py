"""The bundles of a service, as its dashboard shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from tunewright.errors import StoreError
from tunewright.model.decision import Decision
from tunewright.service.bundles import BUNDLE_NAMESPACE, LISTING_NAMESPACE, BundleListing, digest_of, open_bundle
from tunewright.service.storage import ServiceStorage
from tunewright.stores import serialization
from tunewright.stores.bundle import BundleStore

MAX_OPEN = 2
"""Bundles that are kept open at once."""


class StoredBundle:
    """A bundle that is opened only when the listing does not have what is asked for."""

    def __init__(self, listing: BundleListing, catalog: BundleCatalog) -> None:
        self._listing, self._catalog = listing, catalog
        self.path, self.digest = Path(f"{listing.digest[:12]}.bundle"), listing.digest
        self.signer = listing.signer or None

    @cached_property
    def manifest(self) -> Any:
        """The manifest of the bundle."""
        return self._listing.manifest or self._opened.manifest

    @property
    def attachments(self) -> Mapping[tuple[str, str], Any]:
        """The attachments, by kind and name."""
        return self._opened.attachments

    def decisions(self, kernel: str | None = None) -> Iterable[Decision]:
        """Returns the decisions of the bundle."""
        return self._opened.decisions(kernel)

    @property
    def _opened(self) -> BundleStore:
        return self._catalog.open(self.digest, self._listing.signer)


class BundleCatalog:
    """All bundles of a service."""

    def __init__(self, storage: ServiceStorage) -> None:
        self._storage = storage
        self.open = lru_cache(MAX_OPEN)(self._open)

    def __call__(self) -> Sequence[StoredBundle]:
        """Returns the bundles that are stored now."""
        entries = self._storage.primary.entries(LISTING_NAMESPACE)
        return [StoredBundle(serialization.decode(body, BundleListing), self) for _, body in entries]

    def _open(self, digest: str, signer: str) -> BundleStore:
        body: bytes | None = self._storage.primary.fetch(BUNDLE_NAMESPACE, [digest]).get(digest)
        if body is None or digest_of(body) != digest:
            raise StoreError(f"the bundle {digest[:12]} is damaged or no longer stored")
        return open_bundle(digest, body, signer)
