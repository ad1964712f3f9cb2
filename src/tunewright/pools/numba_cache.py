"""Numba's cache on the disk: what is compiled under our name of a script must not be found by the script itself."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

VARIABLE = "NUMBA_CACHE_DIR"


def use_numba_cache(folder: Path, kind: str) -> None:
    """Lets Numba keep what this process compiles in a folder of its own, or in a part of the one that the user names.

    Numba stores the name of a module with each function, and imports that module when it finds the function again.
    Kernels that are loaded in different ways, as another `kind`, have different names.
    """
    given = os.environ.get(VARIABLE)  # noqa: TID251 - Numba's, extended
    _set(str((Path(given) / "tunewright" if given else folder / "numba") / kind))


@contextmanager
def temporary_numba_cache() -> Iterator[None]:
    """Gives functions that are defined in the block a cache that ends with this process."""
    before = os.environ.get(VARIABLE)  # noqa: TID251 - restored below
    _set(_temporary_folder())
    try:
        yield
    finally:
        _set(before or "")


@cache
def _temporary_folder() -> str:
    """Returns a name that nobody can guess. Numba makes the folder only if it keeps something.

    A folder that was made for every kernel would stay behind wherever a process is killed.
    """
    folder = os.path.join(tempfile.gettempdir(), f"tunewright-numba-{secrets.token_hex(16)}")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _set(folder: str) -> None:
    """Sets the variable, which Numba reads when it is imported, and Numba's own copy of it if it has been."""
    if folder:
        os.environ[VARIABLE] = folder  # noqa: TID251 - as above
    else:
        os.environ.pop(VARIABLE, None)  # noqa: TID251 - as above
    config: Any = sys.modules.get("numba.core.config")
    if config is not None:
        config.CACHE_DIR = folder
