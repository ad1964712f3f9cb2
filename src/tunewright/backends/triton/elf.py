"""Elf: what a compiled kernel's file says of itself; each place is checked against the file before it is read."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tunewright.errors import BackendError

MOST_SECTIONS = 4096

# The kinds of entry in .nv.info that are looked at: a function's number and one figure of it.
_SIZED, _FRAME, _REGISTERS = 0x04, 0x11, 0x2F


@dataclass(frozen=True)
class Section:
    """A named stretch of the file."""

    name: str
    content: memoryview
    size: int


def sections(blob: bytes) -> list[Section]:
    """The sections of a 64-bit little-endian ELF file."""
    if blob[:6] != b"\x7fELF\x02\x01":
        raise BackendError("the compiled kernel is no 64-bit little-endian ELF file; was it written by this Triton?")
    (start,) = _read("<Q", blob, 0x28)
    size, count, names = _read("<HHH", blob, 0x3A)
    if count > MOST_SECTIONS or names >= count:
        raise BackendError(f"the compiled kernel claims {count} sections, names in {names}; it is damaged")
    rows = [_read("<IIQQQQ", blob, start + i * size) for i in range(count)]
    table = _part(blob, rows[names][4], rows[names][5])
    return [_section(blob, table, row) for row in rows]


def _section(blob: bytes, table: memoryview, row: tuple[int, ...]) -> Section:
    name, kind, _, _, offset, size = row
    said = bytes(_part(table, name, len(table) - name)).partition(b"\0")[0].decode(errors="replace")
    empty_in_file = kind in (0, 8)  # SHT_NULL, SHT_NOBITS
    return Section(said, memoryview(b"") if empty_in_file else _part(blob, offset, size), size)


def code_bytes(found: list[Section]) -> int:
    """Bytes of machine code."""
    return sum(section.size for section in found if section.name == ".text" or section.name.startswith(".text."))


def registers_and_stack(found: list[Section]) -> tuple[int, int]:
    """Registers a thread and bytes of stack of a cubin: of its functions, the one that needs most."""
    figures: dict[int, list[int]] = {_REGISTERS: [], _FRAME: []}
    for section in found:
        if section.name == ".nv.info":
            for kind, body in _entries(section.content):
                if kind in figures and len(body) == 8:
                    figures[kind].append(struct.unpack("<II", body)[1])
    if not figures[_REGISTERS]:
        raise BackendError("the cubin does not say how many registers it needs; was it written by another ptxas?")
    return max(figures[_REGISTERS]), max(figures[_FRAME], default=0)


def _entries(info: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The entries of .nv.info that have a body: their kind and that body."""
    at = 0
    while at + 4 <= len(info):
        form, kind, size = _read("<BBH", info, at)
        at += 4
        if form == _SIZED:
            yield kind, _part(info, at, size)
            at += size


def _read(form: str, blob: bytes | memoryview, at: int) -> tuple[int, ...]:
    return struct.unpack(form, _part(blob, at, struct.calcsize(form)))


def _part(blob: bytes | memoryview, at: int, size: int) -> memoryview:
    if at < 0 or size < 0 or at + size > len(blob):
        raise BackendError(f"the compiled kernel points to {size} bytes at {at}, but has {len(blob)}; it is damaged")
    return memoryview(blob)[at : at + size]
