"""Folders for what is being built, inside of a cache; those of builds that were killed are removed by the next one."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tunewright.errors import BackendError
from tunewright.stores.files import make_folder

FOLDER = "scratch"


@contextmanager
def scratch_folder(cache: Path) -> Iterator[Path]:
    """Makes a folder in `cache` for one build and removes it afterwards; raises BackendError if it cannot be made.

    The process holds a lock on it: when the process dies, however it dies, the folder can be recognized as abandoned.
    """
    import shutil  # noqa: PLC0415 - slow to import, and a cached launch never needs it

    remove_abandoned(cache)
    try:
        folder, lock = _make(cache / FOLDER)
    except OSError as error:
        advice = "set `cache` or TUNEWRIGHT_CACHE to a folder that can be written"
        raise BackendError(f"cannot write in {cache}: {error.strerror}; {advice}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _make(parent: Path) -> tuple[Path, int]:
    """Returns a new folder and the open file that has it locked."""
    import tempfile  # noqa: PLC0415 - as in scratch_folder

    while True:
        make_folder(parent)
        folder = Path(tempfile.mkdtemp(dir=parent))
        with suppress(FileNotFoundError):  # another process removed it before it was locked
            lock = os.open(folder, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.is_dir():
                return folder, lock
            os.close(lock)


def own_folders(parent: Path, pattern: str) -> list[Path]:
    """Returns the folders in `parent` that are no links: what lies behind a link is not ours to remove."""
    return [folder for folder in parent.glob(pattern) if folder.is_dir() and not folder.is_symlink()]


def remove_abandoned(cache: Path) -> int:
    """Removes the folders of builds whose process is gone; returns how many."""
    import shutil  # noqa: PLC0415 - as in scratch_folder

    count = 0
    for folder in (inner for parent in own_folders(cache, FOLDER) for inner in own_folders(parent, "*")):
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
                count += 1
            finally:
                os.close(lock)
    return count
