"""Files: bounded reads of regular files, and atomic writes."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Without O_NONBLOCK, opening a pipe waits for its writer."""


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """Returns the content of a file of at most `max_bytes`; raises OSError if it is larger or not a regular file.

    The content is a copy: later changes to the file do not affect it.
    """
    with open(os.open(path, _FLAGS), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is a folder, a pipe or a device, not a file")
        if status.st_size > max_bytes:
            raise OSError(f"{path} has {status.st_size:,} bytes; at most {max_bytes:,} are read")
        parts, left = [], status.st_size
        while left and (part := file.read(left)):  # one read returns at most 2 GB
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def write_atomic(path: Path, *parts: bytes, durable: bool = False) -> None:
    """Writes `parts` to `path` by renaming a temporary file; `durable` waits until they are on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    with scratch.open("wb") as file:
        for part in parts:
            file.write(part)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(scratch, path)
