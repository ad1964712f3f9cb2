"""Loads shared libraries from bytes that were checked, not from files that may be others by now."""

from __future__ import annotations

import ctypes
import fcntl
import os
from itertools import count
from pathlib import Path

from tunewright.errors import BackendError

_numbers = count(1)
_loaded: dict[tuple[Path, bytes], ctypes.CDLL] = {}
"""Libraries of this process by path and digest: loading one again gives the same, with its state."""


def open_library(content: bytes, path: Path) -> ctypes.CDLL:
    """Returns the library with these bytes, which were read from `path`; loaded once in each process."""
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL

    key = path, sha256(content).digest()
    if key not in _loaded:
        _loaded[key] = open_copy(content, path.name)
    return _loaded[key]


def open_copy(content: bytes, name: str) -> ctypes.CDLL:
    """Loads a library once more, at another address and with its own state; raises BackendError if it cannot be."""
    try:
        return _open_in_memory(content, name)
    except (OSError, AttributeError):  # a system that cannot execute memory, or a library that cannot be loaded
        pass
    import tempfile  # noqa: PLC0415 - rarely needed

    with tempfile.TemporaryDirectory() as folder:  # a library stays loaded after its file is gone
        copy = Path(folder) / name
        copy.write_bytes(content)
        try:
            return ctypes.CDLL(str(copy))
        except OSError as error:
            advice = "name the libraries it needs in libraries=[...], or their folders in LD_LIBRARY_PATH"
            raise BackendError(f"the built library cannot be loaded: {error}; {advice}") from error


def _open_in_memory(content: bytes, name: str) -> ctypes.CDLL:
    """Loads a library from a file in memory, which no process can change any more."""
    file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(file, "wb", closefd=False) as memory:
            memory.write(content)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
        return ctypes.CDLL(_unique_path(file))
    finally:
        os.close(file)


def _unique_path(file: int) -> str:
    """Returns a path of an open file that was never used before.

    The system takes a path that it has seen for the library it loaded from there, and numbers of files are used again.
    """
    digits = "".join("/." if digit == "0" else "//." for digit in f"{next(_numbers):b}")
    return f"/proc/self{digits}/fd/{file}"
