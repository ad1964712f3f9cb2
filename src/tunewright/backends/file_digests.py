"""Digests of files, which are read again only if they changed."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from tunewright.backends.host import digest
from tunewright.stores import files

SMALL = 1 << 18
"""Bytes up to which reading a file costs less than remembering its digest on the disk."""

SETTLED_SECONDS = 2.0
"""A file that was changed later than so long ago may change again without looking different."""

_remembered: dict[Path, tuple[str, str]] = {}


def file_digest(path: Path, cache: Path) -> str:
    """Returns a digest of the bytes of a file: 32 hexadecimal digits.

    That of a large file is remembered in `cache`, for a file that looks the same: size, times, inode and device.
    """
    status = path.stat()
    looks = looks_of(status)
    note = cache / "digests" / digest(str(path)) if status.st_size > SMALL else None
    remembered = _remembered.get(path) or _read_note(note)
    if remembered is not None and remembered[0] == looks:
        return remembered[1]
    from hashlib import file_digest as hash_file  # noqa: PLC0415 - loads OpenSSL

    with path.open("rb") as file:
        found = hash_file(file, "sha256").hexdigest()[:32]
    if has_settled(status):
        _remembered[path] = looks, found
        if note is not None:
            with suppress(OSError):  # a cache that cannot be written: the file is read again
                files.write_atomic(note, f"{looks}\n{found}".encode())
    return found


def looks_of(status: os.stat_result) -> str:
    """Returns what a file looks like: size, times, inode and device."""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino} {status.st_dev}"


def has_settled(status: os.stat_result) -> bool:
    """Whether a file was changed long enough ago that a further change would be seen."""
    return 0 <= max(status.st_mtime, status.st_ctime) < time.time() - SETTLED_SECONDS


def _read_note(note: Path | None) -> tuple[str, str] | None:
    if note is None:
        return None
    try:
        looks, _, found = files.read_bounded(note, 1 << 10, own=True).decode().partition("\n")
    except (OSError, ValueError):
        return None
    return (looks, found) if len(found) == 32 else None
