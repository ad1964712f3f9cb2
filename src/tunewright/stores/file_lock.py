"""A lock on a file, so that one process at a time measures on a device; it is freed when its holder dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tunewright.lazy_logging import LazyLogger
from tunewright.stores.files import make_folder

log = LazyLogger(__name__)


@contextmanager
def exclusive_lock(path: Path | None) -> Iterator[None]:
    """Holds the lock at `path`; with None, does nothing."""
    if path is None:
        yield
        return
    # The lock belongs to the open file, so the kernel frees it when the process dies, however it dies.
    file = _open(path)
    try:
        _lock(file, path)
        yield
    finally:
        os.close(file)


def _lock(file: int, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        # A network file system may have no locks, or none for a file that can only be read.
        log.warning("%s cannot be locked, so measurements may disturb each other: %s; set `cache`", path, error)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Holds a lock on a folder itself, which leaves no file behind; for operations that take a moment.

    Raises OSError if the folder cannot be read. A file system without locks has none.
    """
    file = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _open(path: Path) -> int:
    try:
        make_folder(path.parent)
        return _open_file(path)
    except OSError:
        # In a read-only home, lock the nearest existing folder instead.
        return os.open(next(folder for folder in path.parents if folder.is_dir()), os.O_RDONLY)


def _open_file(path: Path) -> int:
    """Opens for writing, which locks need on NFS; for reading if the file belongs to somebody else."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
