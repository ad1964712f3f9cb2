"""The digest of a bundle, which is what signers sign and what can be pinned.

Layout 1: the SHA-256 of everything before the signatures. Layout 2: the SHA-256 of everything before the attachments,
followed by the BLAKE3 digest of the attachments. The header says which, and where attachments begin; SHA-256 covers it
in both, so no header can be exchanged for another.
"""

from __future__ import annotations

from hashlib import sha256

from tunewright.stores import fast_digest
from tunewright.stores.bundle import layout


class BundleHasher:
    """Computes the digest of a bundle at the start of `whole`, also while that is still being filled."""

    def __init__(self, whole: memoryview) -> None:
        self._whole, self._done = whole, 0
        self._plain: fast_digest.Hasher = sha256()
        self._fast: fast_digest.Hasher | None = None
        self._blobs = 0

    def advance(self, end: int) -> None:
        """Hashes what is there by now, the first `end` bytes; waits for a complete header."""
        if end >= layout.HEADER:
            self._hash(end)

    def digest(self, length: int) -> bytes:
        """Returns the digest of the first `length` bytes; raises BundleError if they are of no known layout."""
        layout.check_header(self._whole[:length])
        hasher = BundleHasher(self._whole)
        if self._done <= length:
            hasher._done, hasher._blobs, hasher._plain = self._done, self._blobs, self._plain.copy()
            hasher._fast = self._fast and self._fast.copy()
        hasher._hash(length)
        if hasher._fast is not None:
            hasher._plain.update(hasher._fast.digest())
        return hasher._plain.digest()

    def _hash(self, end: int) -> None:
        if not self._done and (blobs := layout.find_blobs(self._whole[:end])) is not None:
            self._fast, self._blobs = fast_digest.new_blake3(), blobs
        border = end if self._fast is None else min(max(self._blobs, self._done), end)
        self._plain.update(self._whole[self._done : border])
        if self._fast is not None:
            self._fast.update(self._whole[border:end])
        self._done = end


def digest(content: bytes | memoryview) -> bytes:
    """Returns the digest of a bundle without its signatures; raises BundleError if it is of no known layout."""
    return BundleHasher(memoryview(content)).digest(len(content))
