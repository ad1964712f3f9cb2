"""Lease: one timing at a time per device, across processes; a dead holder's lease is free at once."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def lease(path: Path | None) -> Iterator[None]:
    """Hold the device behind `path` (None: no one else can want it)."""
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # The lock belongs to the open file, so the kernel frees it when the process dies, however it dies.
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
