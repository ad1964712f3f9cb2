"""Files: bounded reads of regular files, atomic writes, and what must be on the disk before it is relied on."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Without O_NONBLOCK, opening a pipe waits for its writer."""

_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

_synced: set[Path] = set()
"""Folders whose names, and those of the folders above them, are on the disk."""

_NO_LINK = getattr(os, "O_NOFOLLOW", 0)

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
"""Rights of other users to change a file."""


def read_bounded(
    path: Path, max_bytes: int, check: Callable[[os.stat_result], None] | None = None, *, own: bool = False
) -> bytes:
    """Returns the content of a file of at most `max_bytes`; raises OSError if it is larger or not a regular file.

    The content is a copy: later changes to the file do not affect it. `check` may refuse the very file that is read.
    With `own`, it must be one that no other user could have put there or changed: no symbolic link, and nobody else's.
    """
    with open_bounded(path, max_bytes, check, own=own) as file:
        parts, left = [], os.fstat(file.fileno()).st_size
        while left and (part := file.read(left)):  # one read returns at most 2 GB
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def open_bounded(
    path: Path, max_bytes: int, check: Callable[[os.stat_result], None] | None = None, *, own: bool = False
) -> FileIO:
    """Opens a file as `read_bounded` does, to read it without a buffer."""
    file = open(os.open(path, _FLAGS | (_NO_LINK if own else 0)), "rb", buffering=0)  # noqa: SIM115 - returned
    try:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is a folder, a pipe or a device, not a file")
        if own and (stranger := _stranger(status)):
            raise OSError(f"{path} {stranger}")
        if status.st_size > max_bytes:
            raise OSError(f"{path} has {status.st_size:,} bytes; at most {max_bytes:,} are read")
        if check is not None:
            check(status)
    except BaseException:
        file.close()
        raise
    return file


def _stranger(status: os.stat_result) -> str:
    """Returns how another user could have written a file; empty if only this user and root could."""
    if not hasattr(os, "geteuid"):
        return ""
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to another user (uid {status.st_uid})"
    return "can be written by other users" if status.st_mode & OTHERS_WRITE else ""


def write_atomic(path: Path, *parts: bytes | memoryview, durable: bool = False) -> None:
    """Writes `parts` to `path` by renaming a temporary file.

    A power cut leaves the former file or the new one, never a part: the content is on the disk before it gets its
    name. `durable` also waits until the name is.
    """
    make_folder(path.parent, durable=durable)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    with open(os.open(scratch, _WRITE_FLAGS, 0o644), "wb") as file:  # others never write it, whatever the umask
        for part in parts:
            file.write(part)
    replace(scratch, path, durable=durable)


def replace(source: Path, path: Path, *, durable: bool = False) -> None:
    """Renames a complete file, after its content is on the disk; `durable` also waits until the name is."""
    sync(source)
    os.replace(source, path)
    if durable:
        sync(path.parent)


def make_folder(folder: Path, *, durable: bool = False) -> None:
    """Makes a folder and those above it, in which only this user can write, whatever the umask.

    `durable` waits until their names are on the disk, whoever made them.
    """
    if not folder.is_dir():
        _synced.difference_update((folder, *folder.parents))
        _make(folder)
    if durable and folder not in _synced:
        for part in folder.absolute().parents:
            with suppress(PermissionError):  # a folder that we may not read is not one that we made
                sync(part)
        _synced.add(folder)


def _make(folder: Path) -> None:
    if folder.is_dir():
        return
    if folder.parent != folder:
        _make(folder.parent)
    try:
        folder.mkdir(mode=0o755)
    except FileExistsError:
        if not folder.is_dir():
            raise


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
