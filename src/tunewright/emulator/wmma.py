"""`wmma`: products of matrices that a warp holds together, in an order that PTX leaves open.

Here each lane holds elements that follow each other: of factors in the order of memory, which `wmma.mma` names too, of
sums by rows. What a device holds twice is held twice here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tunewright.backends.grid_launch import WARP
from tunewright.emulator import access, types
from tunewright.emulator.builders import builds
from tunewright.emulator.faults import UnsupportedInstruction
from tunewright.emulator.matrix_ops import ELEMENTS, read_words
from tunewright.emulator.operands import Operands, Step
from tunewright.emulator.ptx_text import Instruction
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.group import Group
    from tunewright.emulator.memory import Memory

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "f32": 4, "s32": 4, "s8": 1, "u8": 1}
_LARGEST_ACCESS = 16


@dataclass(frozen=True)
class Fragment:
    """The part of a matrix that a lane holds: `lines` of `length` elements in memory, so many elements each.

    `follows` is whether the elements of a lane follow each other in memory.
    """

    kind: str
    lines: int
    length: int
    follows: bool = True

    @property
    def share(self) -> int:
        """Elements of a lane."""
        return self.lines * self.length // WARP

    def offsets(self, stride: Array, step: int) -> list[Array]:
        """Returns where each lane accesses `step` elements at a time, in elements from the start of the matrix."""
        found = []
        for part in range(0, self.share, step):
            element = np.tile(np.arange(WARP) * self.share + part, len(stride) // WARP)
            line, place = element // self.length, element % self.length
            found.append(line * stride + place if self.follows else place * stride + line)
        return found


def _fragment(item: Instruction, which: str, kind: str, layout: str) -> Fragment:
    """Returns the fragment of one matrix; `which` is a, b, c or d."""
    shape = next((found for word in item.modifiers if (found := _SHAPE.fullmatch(word))), None)
    if shape is None or kind not in _BYTES:
        raise UnsupportedInstruction(item.place)
    m, n, k = (int(word) for word in shape.groups())
    rows, columns = {"a": (m, k), "b": (k, n)}.get(which, (m, n))
    if which in "ab":
        return Fragment(kind, rows, columns) if layout == "row" else Fragment(kind, columns, rows)
    return Fragment(kind, rows, columns, layout == "row")


@builds("wmma", located=True)
def matrix(ops: Operands, item: Instruction) -> Step:
    """`wmma.load`, `wmma.mma` and `wmma.store`."""
    verb = item.modifiers[0]
    if verb == "mma":
        return _multiply(ops, item)
    layout = "row" if item.has("row") else "col"
    fragment = _fragment(item, item.modifiers[1], item.modifiers[-1], layout)
    return _load(ops, item, fragment) if verb == "load" else _store(ops, item, fragment)


def access_bytes(item: Instruction) -> int:
    """Returns the bytes of the smallest access of a `wmma.load` or `wmma.store`; 16 if it is none."""
    return _LARGEST_ACCESS if item.has("mma") else _BYTES.get(item.modifiers[-1], 1)


def _step(fragment: Fragment) -> int:
    """Returns how many elements one access takes."""
    return min(_LARGEST_ACCESS // _BYTES[fragment.kind], fragment.share) if fragment.follows else 1


class _Piece(NamedTuple):
    """An access to a fragment: its number, and where it is in a memory, for the lanes that have it there."""

    number: int
    memory: Memory
    lanes: Array | slice
    places: Array


def _walk(ops: Operands, item: Instruction, operand: str, fragment: Fragment) -> Callable[[Group], Iterator[_Piece]]:
    """Returns a function that yields where the pieces of a fragment lie, in each memory that has some."""
    base, offset = ops.address(item, operand)
    stride = ops.read(item, item.operands[2], "u32") if len(item.operands) > 2 else None
    space, size, step = access.space_of(item), _BYTES[fragment.kind], _step(fragment)

    def walk(group: Group) -> Iterator[_Piece]:
        start = group.full(base(group)).astype(np.uint64)
        strides = group.full(stride(group) if stride else np.array([fragment.length])).astype(np.int64)
        for number, places in enumerate(fragment.offsets(strides, step)):
            address = start + (places * size).astype(np.uint64)
            for memory in access.memories(group, space, address):
                lanes = group.lanes()
                chosen = slice(None) if lanes is None else lanes
                yield _Piece(number, memory, chosen, memory.locate(group, address, offset, step * size))

    return walk


def _load(ops: Operands, item: Instruction, fragment: Fragment) -> Step:
    walk = _walk(ops, item, item.operands[1], fragment)
    scatters = [ops.scatter(item, name, "b32") for name in ops.vector(item.operands[0])]
    size, step = _BYTES[fragment.kind], _step(fragment)

    def run(group: Group) -> None:
        held = np.zeros((group.size, fragment.share * size), np.uint8)
        for number, memory, lanes, flat in walk(group):
            access.observe_read(group, memory, flat, step * size)
            part = np.ascontiguousarray(memory.load(flat, size, step)).view(np.uint8)
            held[lanes, number * step * size : (number + 1) * step * size] = part
        words, active = held.view(np.uint32), group.lanes()
        for number, scatter in enumerate(scatters):
            column = np.ascontiguousarray(words[:, number % words.shape[1]])
            scatter(group, active, column if active is None else column[active])

    return run


def _store(ops: Operands, item: Instruction, fragment: Fragment) -> Step:
    walk = _walk(ops, item, item.operands[0], fragment)
    readers = [ops.read(item, name, "b32") for name in ops.vector(item.operands[1])]
    size, step = _BYTES[fragment.kind], _step(fragment)

    def run(group: Group) -> None:
        words = np.stack([group.full(read(group)) for read in readers], axis=1)
        held = np.ascontiguousarray(words).view(types.UNSIGNED[size])
        for number, memory, lanes, flat in walk(group):
            part = held[lanes, number * step : (number + 1) * step]
            access.store_checked(group, memory, flat, np.ascontiguousarray(part))

    return run


def _multiply(ops: Operands, item: Instruction) -> Step:
    layouts = [word for word in item.modifiers if word in ("row", "col")]
    kinds = [word for word in item.modifiers if word in _BYTES]
    kinds = [kinds[0], "f16", "f16", kinds[1]] if len(kinds) == 2 else kinds
    if len(kinds) != 4 or len(layouts) != 2 or item.has("satfinite"):
        raise UnsupportedInstruction(item.place)
    left, right = (_fragment(item, "ab"[i], kinds[1 + i], layouts[i]) for i in range(2))
    total, added = (_fragment(item, "d", kind, "row") for kind in (kinds[0], kinds[3]))
    a, b, c = ([ops.read(item, name, "b32") for name in ops.vector(text)] for text in item.operands[1:])
    d = [ops.write(item, name, "b32") for name in ops.vector(item.operands[0])]
    operations = 2 * total.lines * total.length * (left.length if layouts[0] == "row" else left.lines)

    def run(group: Group) -> None:
        one, other = _decode(read_words(group, a), left), _decode(read_words(group, b), right)
        one = one if layouts[0] == "row" else one.transpose(0, 2, 1)
        other = other if layouts[1] == "row" else other.transpose(0, 2, 1)
        result = _encode(_decode(read_words(group, c), added) + one @ other, total)
        for number, write in enumerate(d):
            write(group, np.ascontiguousarray(result[:, number]))
        warps = int(access.active_rows(group).sum())
        group.machine.counters.add("tensor_operations", group.at, operations * warps)

    return run


def _decode(words: Array, fragment: Fragment) -> Array:
    """Returns the matrices in registers with axes (register, warp, lane); sums of integers in double precision."""
    needed = fragment.share * _BYTES[fragment.kind] // 4
    own = np.ascontiguousarray(words[:needed].transpose(1, 2, 0))
    if fragment.kind in ("f32", "s32"):
        values = own.view(np.float32) if fragment.kind == "f32" else own.view(np.int32).astype(np.float64)
    else:
        values = ELEMENTS[fragment.kind].decode(own)
    return values.reshape(words.shape[1], fragment.lines, fragment.length)


def _encode(matrices: Array, fragment: Fragment) -> Array:
    """Returns the registers, axes (lane of all warps, register), that hold matrices."""
    kind = {"f16": np.float16, "s32": np.int32}.get(fragment.kind, np.float32)
    values = np.ascontiguousarray(matrices.astype(kind)).reshape(-1, fragment.share)
    return values.view(np.uint32)
