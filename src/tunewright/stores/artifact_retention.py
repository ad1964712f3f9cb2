"""Removes artifacts that nobody uses any more, each together with its label, and what killed builds left."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from tunewright.stores import artifacts
from tunewright.stores.file_lock import folder_lock
from tunewright.stores.scratch import own_folders, remove_abandoned

MAX_UNUSED_SECONDS = 30 * 86400.0
"""How long an artifact stays in the cache without being loaded, by default."""

LEFTOVER_SECONDS = 3600.0
"""Age at which a temporary file belongs to nobody any more: writing one takes a moment."""

NOTES = ("digests", "headers")
"""Folders of a cache that hold what is remembered of other files."""

_LOADED = re.compile(r"/memfd:([0-9a-f]{32,64}\.[a-z0-9]{1,8})(?: |$)", re.MULTILINE)


def remove_stale_artifacts(cache: Path, age: float | None) -> tuple[int, int]:
    """Removes artifacts that were not used for `age` seconds; returns their number and size. They can be rebuilt.

    An artifact is in use if it was loaded since, or a process of this user that still runs has it loaded. Then its
    label and the record of the bundle that brought it stay as well, however old they are.
    """
    before = time.time() - (MAX_UNUSED_SECONDS if age is None else age)
    remove_abandoned(cache)
    loaded = loaded_names()
    count = freed = 0
    parents = own_folders(cache, artifacts.FOLDER)
    for folder in (inner for parent in parents for inner in own_folders(parent, "??")):
        with suppress(OSError), folder_lock(folder):
            _remove_leftovers(folder)
            for members in _groups(folder):
                if not any(path.name in loaded for path in members) and _last_use(members) < before:
                    count, freed = count + 1, freed + _remove(members)
    notes = (path for name in NOTES for folder in own_folders(cache, name) for path in folder.glob("*"))
    applied = (inner for parent in parents for inner in own_folders(parent, artifacts.APPLIED))
    records = (path for folder in applied for path in folder.glob(f"*{artifacts.LABEL_SUFFIX}"))
    stale = [path for path in (*notes, *records) if _last_use([path]) < before]  # before records are read
    freed += sum(_remove([path]) for path in stale if not _has_artifacts(cache, path))
    return count, freed


def loaded_names() -> set[str]:
    """Returns the names of artifacts that processes of this user have loaded."""
    names: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # another user's, or gone
            names.update(_LOADED.findall(maps.read_text(errors="replace")))
    return names


def _groups(folder: Path) -> Iterator[list[Path]]:
    """Yields each artifact of a folder with its label or record: files whose names begin alike."""
    groups: dict[str, list[Path]] = defaultdict(list)
    for path in folder.iterdir():
        if not path.name.startswith("."):
            groups[path.name.partition(".")[0]].append(path)
    yield from groups.values()


def _last_use(paths: Iterable[Path]) -> float:
    """Returns when any of the files was last written or read, as far as the file system notes it."""
    times = [0.0]
    for path in paths:
        with suppress(OSError):
            status = os.lstat(path)
            times.append(max(status.st_mtime, status.st_atime))
    return max(times)


def _remove(paths: Iterable[Path]) -> int:
    """Removes files, or folders that older versions built in; returns the bytes that files had."""
    freed = 0
    for path in paths:
        with suppress(OSError):
            status = os.lstat(path)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
                freed += status.st_size
    return freed


def _remove_leftovers(folder: Path) -> None:
    """Removes temporary files of writers that were killed."""
    before = time.time() - LEFTOVER_SECONDS
    _remove(path for path in folder.glob(".*") if _last_use([path]) < before)


def _has_artifacts(cache: Path, record: Path) -> bool:
    """Whether an artifact is left of those that the bundle of a record brought."""
    return any(artifacts.artifact_path(cache, label.name).exists() for label in artifacts.labels_in(record))
