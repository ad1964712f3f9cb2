"""A lock on a file, so that one process at a time measures on a device; it is freed when its holder dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive_lock(path: Path | None) -> Iterator[None]:
    """Holds the lock at `path`; with None, does nothing."""
    if path is None:
        yield
        return
    # The lock belongs to the open file, so the kernel frees it when the process dies, however it dies.
    file = _open(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
    except OSError:
        # In a read-only home, lock the nearest existing folder instead.
        return os.open(next(folder for folder in path.parents if folder.is_dir()), os.O_RDONLY)
