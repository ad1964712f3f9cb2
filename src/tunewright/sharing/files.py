"""Files: read once and whole, nothing that waits, never ends or is too large; written at once or not at all."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""To open a pipe waits for whoever writes to it, unless one says not to."""


def content(path: Path, most: int) -> bytes:
    """What is in the file at `path`, of at most so many bytes; an OSError if it is no file, or larger.

    A copy of our own: whoever changes or shortens the file later does not change what was read.
    """
    with open(os.open(path, _FLAGS), "rb", buffering=0) as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise OSError(f"{path} is a folder, a pipe or a device, not a file")
        if state.st_size > most:
            raise OSError(f"{path} has {state.st_size:,} bytes; at most {most:,} are read")
        parts, left = [], state.st_size
        while left and (part := file.read(left)):  # one read gives 2 GB at most
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def put(path: Path, *parts: bytes, lasting: bool = False) -> None:
    """Write `parts` to `path`, at once or not at all, whoever else does; `lasting` waits until the disk has them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    with scratch.open("wb") as file:
        for part in parts:
            file.write(part)
        if lasting:
            file.flush()
            os.fsync(file.fileno())
    os.replace(scratch, path)
