"""Reading a bundle once: into private memory on huge pages, and hashed while what was read is still in the caches."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from tunewright.stores import files
from tunewright.stores.bundle import layout
from tunewright.stores.bundle.digests import BundleHasher

ALIGNMENT = 64
"""The largest attachment begins at a multiple of so many bytes in memory, so that it can be used in place."""

_CHUNK = 1 << 18
_HUGE = 1 << 21
_TAIL = (1 + layout.MAX_SIGNATURES) * layout.TRAILER
"""Where the content ends and signatures begin is known only when all is read; this much may be signatures."""


class BundleContent(NamedTuple):
    """The bytes of a bundle in memory of this process, and a hasher that has seen most of them."""

    whole: memoryview
    hasher: BundleHasher

    @classmethod
    def of(cls, whole: bytes) -> BundleContent:
        """Returns content that is in memory already."""
        return cls(memoryview(whole), BundleHasher(memoryview(whole)))

    def digest(self, content: memoryview) -> bytes:
        """Returns the digest of `content`, the part of the bundle before its signatures."""
        return self.hasher.digest(len(content))


def read(path: Path) -> BundleContent:
    """Returns the content of a file: a copy, since a mapped file could change after its digest was verified."""
    with files.open_bounded(path, layout.MAX_BYTES) as file:
        size = os.fstat(file.fileno()).st_size
        shift = -_largest_attachment(file, size) % ALIGNMENT
        whole = memoryview(_allocate(shift + size))[shift : shift + size]
        hasher, done = BundleHasher(whole), 0
        while done < size and (count := file.readinto(whole[done : done + _CHUNK])):
            done += count
            hasher.advance(min(done, size - _TAIL))
        return BundleContent(whole[:done], hasher)


def _largest_attachment(file: IO[bytes], size: int) -> int:
    """Returns where the largest attachment seems to begin; nothing is verified yet, so this only places memory."""

    def part(start: int, length: int) -> bytes:
        file.seek(min(start, size))
        return file.read(length)

    found = layout.find_largest_blob(part)
    file.seek(0)
    return found


def _allocate(size: int) -> mmap.mmap:
    """Returns private memory, on huge pages where the system has them: it is filled and looked up in less time."""
    if not hasattr(mmap, "MAP_PRIVATE") or not hasattr(mmap, "MAP_ANONYMOUS"):
        return mmap.mmap(-1, max(size, 1))
    pages = -(-size // _HUGE) * _HUGE if size >= _HUGE else max(size, 1)
    memory = mmap.mmap(-1, pages, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
