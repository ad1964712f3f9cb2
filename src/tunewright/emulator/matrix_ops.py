"""`mma.sync`, `ldmatrix` and `stmatrix`: products of small matrices that the threads of a warp hold together."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tunewright.emulator import access, small_floats, types
from tunewright.emulator.builders import builds
from tunewright.emulator.faults import UnsupportedInstruction
from tunewright.emulator.operands import Operands, Step
from tunewright.emulator.ptx_text import Instruction
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.group import Group

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


class Element(NamedTuple):
    """An element type of a matrix: elements in 32 bits, and how words are decoded to floats."""

    per_word: int
    decode: Callable[[Array], Array]


def _tf32(words: Array) -> Array:
    return (words & np.uint32(0xFFFFE000)).view(np.float32)[..., None]


def _parts(words: Array, kind: Any) -> Array:
    return np.ascontiguousarray(words)[..., None].view(kind)


ELEMENTS = {
    "f16": Element(2, lambda words: _parts(words, np.float16).astype(np.float32)),
    "bf16": Element(2, lambda words: types.bfloat_to_float(_parts(words, np.uint16))),
    "tf32": Element(1, _tf32),
    "s8": Element(4, lambda words: _parts(words, np.int8).astype(np.float32)),
    "u8": Element(4, lambda words: _parts(words, np.uint8).astype(np.float32)),
    "e4m3": Element(4, lambda words: small_floats.decode("e4m3", _parts(words, np.uint8))),
    "e5m2": Element(4, lambda words: small_floats.decode("e5m2", _parts(words, np.uint8))),
}


def left_fragment(words: Array, element: Element) -> Array:
    """Returns the left matrices, 16 rows each, of registers with axes (register, warp, lane)."""
    count, warps = words.shape[:2]
    parts = element.decode(words).reshape(-(-count // 2), 2, warps, 8, 4, element.per_word)
    return parts.transpose(2, 1, 3, 0, 4, 5).reshape(warps, 16, -1)


def right_fragment(words: Array, element: Element) -> Array:
    """Returns the right matrices, 8 columns each, of registers with axes (register, warp, lane)."""
    count, warps = words.shape[:2]
    parts = element.decode(words).reshape(count, warps, 8, 4, element.per_word)
    return parts.transpose(1, 0, 3, 4, 2).reshape(warps, -1, 8)


def gather_accumulator(values: Array) -> Array:
    """Returns matrices of 16 x 8n of registers with axes (register, warp, lane), four registers for 8 columns."""
    count, warps = values.shape[:2]
    parts = values.reshape(count // 4, 2, 2, warps, 8, 4)
    return parts.transpose(3, 1, 4, 0, 5, 2).reshape(warps, 16, -1)


def scatter_accumulator(matrix: Array) -> Array:
    """Returns the registers, axes (register, lane of all warps), that hold matrices of 16 x 8n."""
    warps, _, columns = matrix.shape
    parts = matrix.reshape(warps, 2, 8, columns // 8, 4, 2)
    return np.ascontiguousarray(parts.transpose(3, 1, 5, 0, 2, 4)).reshape(columns // 2, -1)


def read_words(group: Group, readers: list[Any]) -> Array:
    """Returns registers with axes (register, warp, lane)."""
    return np.stack([group.full(read(group)) for read in readers]).reshape(len(readers), group.blocks, 32)


@builds("mma", located=True)
def multiply(ops: Operands, item: Instruction) -> Step:
    """`mma.sync`: one product of a warp."""
    shape = next((found for word in item.modifiers if (found := _SHAPE.fullmatch(word))), None)
    kinds = [word for word in item.modifiers if word in ELEMENTS or types.is_type(word)]
    if shape is None or len(kinds) != 4 or item.has("sp"):
        raise UnsupportedInstruction(item.place)
    size = tuple(int(word) for word in shape.groups())
    if kinds[1] == "f64" and size == (8, 8, 4):
        return _multiply_double(ops, item)
    if size[:2] != (16, 8) or kinds[1] not in ELEMENTS or kinds[2] not in ELEMENTS or kinds[0] != kinds[3]:
        raise UnsupportedInstruction(item.place)
    left, right = ELEMENTS[kinds[1]], ELEMENTS[kinds[2]]
    a, b = ([ops.read(item, name, "b32") for name in ops.vector(text)] for text in item.operands[1:3])
    half = kinds[0] == "f16"
    register = "b32" if half else kinds[0]
    c = [ops.read(item, name, register) for name in ops.vector(item.operands[3])]
    d = [ops.write(item, name, register) for name in ops.vector(item.operands[0])]
    operations, saturates = 2 * size[0] * size[1] * size[2], item.has("satfinite")

    def run(group: Group) -> None:
        warps = int(access.active_rows(group).sum())
        product = left_fragment(read_words(group, a), left) @ right_fragment(read_words(group, b), right)
        added = read_words(group, c)
        if half:
            added = _parts(added, np.float16).transpose(0, 3, 1, 2).reshape(4, group.blocks, 32)
        if kinds[0] == "s32":
            total = _add_integers(gather_accumulator(added), product, saturates=saturates)
        else:
            total = gather_accumulator(added) + product.astype(np.float32)
        registers = scatter_accumulator(total.astype(np.float16) if half else total)
        if half:
            pairs = registers.reshape(2, 2, -1).transpose(0, 2, 1)
            registers = np.ascontiguousarray(pairs).view(np.uint32).reshape(2, -1)
        for write, values in zip(d, registers, strict=True):
            write(group, values)
        group.machine.counters.add("tensor_operations", group.at, operations * warps)

    return run


def _add_integers(held: Array, product: Array, *, saturates: bool) -> Array:
    total = held.astype(np.int64) + product.astype(np.int64)
    if saturates:
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    return total.astype(np.int32)


def _multiply_double(ops: Operands, item: Instruction) -> Step:
    a, b = (ops.read(item, ops.vector(text)[0], "f64") for text in item.operands[1:3])
    c = [ops.read(item, name, "f64") for name in ops.vector(item.operands[3])]
    d = [ops.write(item, name, "f64") for name in ops.vector(item.operands[0])]

    def run(group: Group) -> None:
        warps = int(access.active_rows(group).sum())
        left = group.full(a(group)).reshape(-1, 8, 4)
        right = group.full(b(group)).reshape(-1, 8, 4).transpose(0, 2, 1)
        product = (left @ right).reshape(-1, 8, 4, 2)
        for number, (read, write) in enumerate(zip(c, d, strict=True)):
            write(group, (read(group) + product[..., number].reshape(-1)))
        group.machine.counters.add("tensor_operations", group.at, 512 * warps)

    return run


@builds("ldmatrix", located=True)
def load_matrix(ops: Operands, item: Instruction) -> Step:
    """`ldmatrix`: matrices of 8 x 8 from shared memory, whose rows the first lanes give."""
    if not item.has("m8n8") or not item.has("b16"):
        raise UnsupportedInstruction(item.place)
    names = ops.vector(item.operands[0])
    base, offset = ops.address(item, item.operands[1])
    scatters = [ops.scatter(item, name, "b32") for name in names]
    transposed = item.has("trans")

    def run(group: Group) -> None:
        whole = access.active_rows(group)
        lanes, memory = group.lanes(), group.machine.shared
        with access.masked(group, group.lane < 8 * len(names)):
            flat = memory.locate(group, base(group), offset, 16)
            access.observe_read(group, memory, flat, 16)
        rows = memory.load(flat, 4, 4).view(np.uint16).reshape(int(whole.sum()), len(names), 8, 8)
        rows = rows.transpose(0, 1, 3, 2) if transposed else rows
        words = np.ascontiguousarray(rows.transpose(1, 0, 2, 3)).view(np.uint32).reshape(len(names), -1)
        for scatter, values in zip(scatters, words, strict=True):
            scatter(group, lanes, values)

    return run


@builds("stmatrix", located=True)
def store_matrix(ops: Operands, item: Instruction) -> Step:
    """`stmatrix`: matrices of 8 x 8 to shared memory."""
    if not item.has("m8n8") or not item.has("b16"):
        raise UnsupportedInstruction(item.place)
    names = ops.vector(item.operands[1])
    base, offset = ops.address(item, item.operands[0])
    readers = [ops.read(item, name, "b32") for name in names]
    transposed = item.has("trans")

    def run(group: Group) -> None:
        whole = access.active_rows(group)
        words = read_words(group, readers)[:, whole]
        rows = np.ascontiguousarray(words).view(np.uint16).reshape(len(names), -1, 8, 8)
        rows = rows.transpose(0, 1, 3, 2) if transposed else rows
        data = np.ascontiguousarray(rows.transpose(1, 0, 2, 3)).reshape(-1, 8).view(np.uint32)
        with access.masked(group, group.lane < 8 * len(names)):
            flat = group.machine.shared.locate(group, base(group), offset, 16)
            access.store_checked(group, group.machine.shared, flat, data)

    return run
