"""Shared libraries: which others one needs, by its ELF headers, and which of them this process has loaded."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from tunewright.errors import BackendError

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB = 1, 5


def needed_libraries(path: Path) -> list[str]:
    """Returns the names of the libraries that a 64-bit ELF file needs; none if it is no such file."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
            if head[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
                return []
            start, size, count = struct.unpack_from("<Q14xHH", head, 32)
            file.seek(start)
            table = file.read(size * count)
            segments = [struct.unpack_from("<IIQQQQ", table, size * i) for i in range(count)]
            dynamic = next((segment for segment in segments if segment[0] == _PT_DYNAMIC), None)
            if dynamic is None:
                return []
            file.seek(dynamic[2])
            entries = list(struct.iter_unpack("<QQ", file.read(dynamic[5] // 16 * 16)))
            strings = next(value for tag, value in entries if tag == _DT_STRTAB)
            base = next(s[2] - s[3] for s in segments if s[0] == _PT_LOAD and s[3] <= strings < s[3] + s[5])
            return [_text_at(file.fileno(), base + strings + value) for tag, value in entries if tag == _DT_NEEDED]
    except (OSError, struct.error, StopIteration):
        return []


def needed_files(libraries: Iterable[Path], folders: Iterable[Path]) -> list[Path]:
    """Returns the files that shared libraries need in turn, as far as they are beside them or in `folders`."""
    found: dict[Path, None] = {}
    pending, folders = list(libraries), list(folders)
    while pending:
        library = pending.pop()
        for name in needed_libraries(library):
            place = next((folder for folder in (library.parent, *folders) if (folder / name).is_file()), None)
            path = None if place is None else (place / name).resolve()
            if path is not None and path not in found:
                found[path] = None
                pending.append(path)
    return list(found)


def refuse_stale_libraries(libraries: Iterable[Path]) -> None:
    """Raises BackendError if this process has an earlier build of a library loaded: the system uses that one again."""
    for library in libraries:
        loaded = _loaded_inodes(library)
        if loaded and library.stat().st_ino not in loaded:
            raise BackendError(
                f"{library.name} was built again while this process has the earlier one loaded; restart the process"
            )


def _loaded_inodes(library: Path) -> set[int]:
    """Returns the inodes of the files that are loaded under the name of a library."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    parts = [line.split(maxsplit=5) for line in lines if library.name in line]
    return {int(part[4]) for part in parts if part[5].removesuffix(" (deleted)") == str(library)}


def _text_at(file: int, offset: int) -> str:
    return os.pread(file, 4096, offset).partition(b"\0")[0].decode(errors="replace")
