"""Lease: one timing at a time per device, across processes; a dead holder's lease is free at once."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def lease(path: Path | None) -> Iterator[None]:
    """Hold the device behind `path` (None: no one else can want it)."""
    if path is None:
        yield
        return
    # The lock belongs to the open file, so the kernel frees it when the process dies, however it dies.
    file = _opened(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _opened(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
    except OSError:
        # In a read-only home, the nearest folder that is there can be locked as well as a file.
        return os.open(next(folder for folder in path.parents if folder.is_dir()), os.O_RDONLY)
