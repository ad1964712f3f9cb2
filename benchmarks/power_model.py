"""What a disk may hold after a power cut: the model, stated in full.

- A file's content is on the disk once an fsync or fdatasync of the file has returned. Of what was written later, any
  512-byte sectors may be there and any others not, in any order; sectors that are missing within the file are zeros.
  A change of size may be there or not.
- A name (create, rename, unlink, link, mkdir) is on the disk once an fsync of its folder has returned. Of later changes
  of names, any may be there and any others not; each is atomic. A rename between two folders counts as done when either
  is synced. An fsync of a file says nothing about its name.
- What was on the disk before the program began stays, and the folder itself is there.

This is stricter than ext4, XFS or Btrfs are. Not modeled: disks that lie about a sync, that damage sectors which were
not being written, or that tear within a sector.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECTOR = 512

Content = dict[str, bytes | None]
"""Files of a folder by relative path; None is a folder."""

Node = tuple[str, Any]
"""What a name leads to: ("file", number) or ("folder", path)."""


@dataclass
class File:
    """A file: what is on the disk for certain, and what was done to it since."""

    durable: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes (offset, bytes) and changes of size (size, None), in order."""

    def content(self, keeps: Callable[[int, int], bool]) -> bytes:
        """Returns the content if those sectors of pending writes are there for which `keeps(write, sector)`."""
        made = bytearray(self.durable)
        for number, (offset, data) in enumerate(self.pending):
            if data is None:
                if keeps(number, 0):
                    _resize(made, offset)
                continue
            for sector, (start, end) in enumerate(sectors(offset, len(data))):
                if keeps(number, sector):
                    _resize(made, max(len(made), end))
                    made[start:end] = data[start - offset : end - offset]
        return bytes(made)

    def sync(self) -> None:
        """Makes everything durable."""
        self.durable, self.pending = self.content(lambda number, sector: True), []


def sectors(offset: int, length: int) -> Iterator[tuple[int, int]]:
    """Yields the parts of a write that are torn apart: where each begins and ends."""
    end = offset + length
    while offset < end:
        following = min(end, (offset // SECTOR + 1) * SECTOR)
        yield offset, following
        offset = following


def _resize(made: bytearray, size: int) -> None:
    if size <= len(made):
        del made[size:]
    else:
        made.extend(bytes(size - len(made)))


@dataclass(eq=False)
class NameChange:
    """A change of names: those that go, and those that come with what they lead to."""

    gone: tuple[str, ...]
    come: tuple[tuple[str, Node], ...]

    @property
    def folders(self) -> set[str]:
        return {os.path.dirname(name) for name in (*self.gone, *(name for name, _ in self.come))}

    def apply(self, names: dict[str, Node]) -> None:
        for name in self.gone:
            names.pop(name, None)
        names.update(self.come)


class Disk:
    """The files of a folder, with what is certain and what is pending. Names are paths relative to the folder."""

    def __init__(self) -> None:
        self.files: list[File] = []
        self.durable_names: dict[str, Node] = {}
        self.names: dict[str, Node] = {}
        self.changes: list[NameChange] = []
        self._inodes: dict[int, int] = {}

    @classmethod
    def from_folder(cls, root: Path) -> Disk:
        """Returns what is in a folder, all of it durable; SQLite's shared memory is left out."""
        disk = cls()
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            if path.is_dir():
                disk.durable_names[name] = ("folder", name)
            elif not name.endswith("-shm"):
                disk.durable_names[name] = ("file", disk._add_file(path.stat().st_ino, path.read_bytes()))
        disk.names = dict(disk.durable_names)
        return disk

    def copy(self) -> Disk:
        return deepcopy(self)

    def _add_file(self, inode: int, content: bytes = b"") -> int:
        self.files.append(File(content))
        self._inodes[inode] = len(self.files) - 1
        return len(self.files) - 1

    def apply(self, operation: Any) -> None:
        """Does what an operation does."""
        getattr(self, "_" + operation.kind.replace("-", "_"))(operation)

    def _ack(self, operation: Any) -> None:
        pass

    def _create(self, operation: Any) -> None:
        self._change((), ((operation.path, ("file", self._add_file(operation.inode))),))

    def _mkdir(self, operation: Any) -> None:
        self._change((), ((operation.path, ("folder", operation.path)),))

    def _unlink(self, operation: Any) -> None:
        self._change((operation.path,), ())

    def _link(self, operation: Any) -> None:
        self._change((), ((operation.path2, self.names[operation.path]),))

    def _rename(self, operation: Any) -> None:
        node = self.names[operation.path]
        if node[0] == "folder":
            raise NotImplementedError("a folder was renamed, which is not modeled")
        self._change((operation.path,), ((operation.path2, node),))

    def _change(self, gone: tuple[str, ...], come: tuple[tuple[str, Node], ...]) -> None:
        change = NameChange(gone, come)
        change.apply(self.names)
        self.changes.append(change)

    def _write(self, operation: Any) -> None:
        self._file(operation).pending.append((operation.offset, operation.data))

    def _truncate(self, operation: Any) -> None:
        self._file(operation).pending.append((operation.offset, None))

    def _fsync(self, operation: Any) -> None:
        self._file(operation).sync()

    def _file(self, operation: Any) -> File:
        return self.files[self._inodes[operation.inode]]

    def _fsync_folder(self, operation: Any) -> None:
        synced, before = {operation.path}, -1
        while before < len(synced):  # a rename takes the earlier changes of its other folder along
            before = len(synced)
            synced = synced.union(*(change.folders for change in self.changes if change.folders & synced))
        for change in self.changes:
            if change.folders & synced:
                change.apply(self.durable_names)
        self.changes = [change for change in self.changes if not change.folders & synced]

    def everything(self) -> Content:
        """Returns the files as the program sees them."""
        return self.state(lambda number: True, lambda file, number, sector: True)

    def state(self, keeps_name: Callable[[int], bool], keeps_sector: Callable[[int, int, int], bool]) -> Content:
        """Returns the files after a cut in which those pending changes of names and sectors arrived."""
        names = dict(self.durable_names)
        for number, change in enumerate(self.changes):
            if keeps_name(number):
                change.apply(names)
        found: Content = {}
        for name, (kind, value) in names.items():
            parents = Path(name).parents
            if any(names.get(str(parent), ("",))[0] != "folder" for parent in parents if str(parent) != "."):
                continue  # nothing leads to it
            if kind == "folder":
                found[name] = None
            else:
                found[name] = self.files[value].content(
                    lambda number, sector, file=value: keeps_sector(file, number, sector)
                )
        return found
