"""Reads sections, registers and stack size from compiled kernels (ELF); every offset is checked before it is read."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tunewright.errors import BackendError

MAX_SECTIONS = 4096

# Attributes of .nv.info that are read: a symbol index and one value, such as EIATTR_REGCOUNT.
_FORM_SIZED, _ATTR_FRAME_SIZE, _ATTR_REGISTERS = 0x04, 0x11, 0x2F


@dataclass(frozen=True)
class ElfSection:
    """A section with its content; `size` counts also where the file has none, as in .bss."""

    name: str
    content: memoryview
    size: int


def read_sections(blob: bytes) -> list[ElfSection]:
    """Returns the sections of a 64-bit little-endian ELF file."""
    if blob[:6] != b"\x7fELF\x02\x01":
        raise BackendError("the compiled kernel is not a 64-bit little-endian ELF file; was it written by this Triton?")
    (table_offset,) = _unpack("<Q", blob, 0x28)
    header_size, count, names_index = _unpack("<HHH", blob, 0x3A)
    if count > MAX_SECTIONS or names_index >= count:
        raise BackendError(
            f"the compiled kernel is damaged: it claims {count} sections, names in section {names_index}"
        )
    headers = [_unpack("<IIQQQQ", blob, table_offset + i * header_size) for i in range(count)]
    name_table = _slice(blob, headers[names_index][4], headers[names_index][5])
    return [_section(blob, name_table, header) for header in headers]


def _section(blob: bytes, name_table: memoryview, header: tuple[int, ...]) -> ElfSection:
    name_offset, kind, _, _, offset, size = header
    names = bytes(_slice(name_table, name_offset, len(name_table) - name_offset))
    name = names.partition(b"\0")[0].decode(errors="replace")
    empty_in_file = kind in (0, 8)  # SHT_NULL, SHT_NOBITS
    return ElfSection(name, memoryview(b"") if empty_in_file else _slice(blob, offset, size), size)


def count_code_bytes(sections: list[ElfSection]) -> int:
    """Returns the bytes of machine code."""
    return sum(section.size for section in sections if section.name == ".text" or section.name.startswith(".text."))


def read_registers_and_stack(sections: list[ElfSection]) -> tuple[int, int]:
    """Returns registers and stack bytes per thread of a cubin, the maximum over its functions."""
    values: dict[int, list[int]] = {_ATTR_REGISTERS: [], _ATTR_FRAME_SIZE: []}
    for section in sections:
        if section.name == ".nv.info":
            for kind, body in _entries(section.content):
                if kind in values and len(body) == 8:
                    values[kind].append(struct.unpack("<II", body)[1])
    if not values[_ATTR_REGISTERS]:
        raise BackendError("the cubin has no register count; was it written by another ptxas?")
    return max(values[_ATTR_REGISTERS]), max(values[_ATTR_FRAME_SIZE], default=0)


def _entries(info: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yields kind and body of the .nv.info entries that have a body."""
    offset = 0
    while offset + 4 <= len(info):
        form, kind, size = _unpack("<BBH", info, offset)
        offset += 4
        if form == _FORM_SIZED:
            yield kind, _slice(info, offset, size)
            offset += size


def _unpack(layout: str, blob: bytes | memoryview, offset: int) -> tuple[int, ...]:
    return struct.unpack(layout, _slice(blob, offset, struct.calcsize(layout)))


def _slice(blob: bytes | memoryview, offset: int, size: int) -> memoryview:
    if offset < 0 or size < 0 or offset + size > len(blob):
        raise BackendError(f"the compiled kernel is damaged: it refers to {size} bytes at {offset} but has {len(blob)}")
    return memoryview(blob)[offset : offset + size]
