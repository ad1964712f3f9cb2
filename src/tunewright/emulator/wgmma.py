"""`wgmma`: products of four warps whose operands are in shared memory, described by 64-bit descriptors."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tunewright.backends.grid_launch import WARP
from tunewright.emulator import access
from tunewright.emulator.builders import builds, nothing
from tunewright.emulator.faults import FaultKind, UnsupportedInstruction
from tunewright.emulator.matrix_ops import ELEMENTS, gather_accumulator, left_fragment, read_words, scatter_accumulator
from tunewright.emulator.memory import SHARED_START
from tunewright.emulator.operands import Operands, Step
from tunewright.emulator.ptx_text import Instruction
from tunewright.emulator.swizzle import swizzle
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.group import Group

_SHAPE = re.compile(r"m64n(\d+)k(\d+)")
_WIDTHS = {0: 16, 1: 128, 2: 64, 3: 32}
K_BYTES = 32
"""Bytes of one row that an instruction multiplies."""


class Matrix(NamedTuple):
    """An operand in shared memory: its rows, its element type, and whether rows are contiguous or columns are."""

    rows: int
    kind: str
    transposed: bool


@builds("wgmma", located=True)
def multiply(ops: Operands, item: Instruction) -> Step:
    """`wgmma` and what belongs to it."""
    if item.has("fence"):
        return nothing
    if item.has("commit_group"):
        return _commit
    if item.has("wait_group"):
        return _wait(int(item.operands[0], 0))
    shape = next((found for word in item.modifiers if (found := _SHAPE.fullmatch(word))), None)
    kinds = [word for word in item.modifiers if word in ELEMENTS or word in ("f32", "s32")]
    if shape is None or len(kinds) != 3 or kinds[0] == "f16" or item.has("sp"):
        raise UnsupportedInstruction(item.place)
    return _multiply(ops, item, int(shape[1]), kinds)


def _multiply(ops: Operands, item: Instruction, columns: int, kinds: list[str]) -> Step:
    target, left, right, scale, *signs = item.operands
    transposes = [int(word, 0) for word in signs[2:]]
    names = ops.vector(target)
    reads = [ops.read(item, name, kinds[0]) for name in names]
    writes = [ops.write(item, name, kinds[0]) for name in names]
    from_registers = left.startswith("{")
    a: Any = (
        [ops.read(item, name, "b32") for name in ops.vector(left)] if from_registers else ops.read(item, left, "b64")
    )
    b, keeps = ops.read(item, right, "b64"), ops.read(item, scale, "pred")
    sign = int(np.prod([int(word, 0) for word in signs[:2]])) if signs else 1
    first = Matrix(WARP // 2, kinds[1], bool(transposes[:1] == [1] and not from_registers))
    second = Matrix(columns, kinds[2], bool(transposes[-1:] == [1]))
    operations = 2 * 16 * columns * K_BYTES * ELEMENTS[kinds[1]].per_word // 4

    def run(group: Group) -> None:
        whole = access.active_rows(group)
        warp = group.thread.reshape(-1, WARP)[:, 0] // WARP % 4
        if from_registers:
            one = left_fragment(read_words(group, a), ELEMENTS[kinds[1]])
        else:
            one = _fetch(group, group.full(a(group)), first, 16 * warp, whole)
        two = _fetch(group, group.full(b(group)), second, np.zeros_like(warp), whole)
        product = (one @ two.transpose(0, 2, 1)) * sign
        held = gather_accumulator(read_words(group, reads))
        keep = group.full(keeps(group)).reshape(-1, WARP)[:, 0]
        total = np.where(keep[:, None, None], held, 0) + product.astype(held.dtype)
        for write, values in zip(writes, scatter_accumulator(total.astype(held.dtype)), strict=True):
            write(group, values)
        group.machine.counters.add("tensor_operations", group.at, operations * int(whole.sum()))

    return run


@functools.cache
def _offsets(matrix: Matrix, width: int, layouts: tuple[tuple[int, int, int], ...]) -> Array:
    """Returns where the 16-byte pieces of a matrix are, before they are permuted; for each block its strides."""
    leading, stride, skipped = (np.array(part)[:, None, None] for part in zip(*layouts, strict=True))
    if not matrix.transposed:
        row, piece = np.arange(matrix.rows)[None, :, None] + skipped, np.arange(2)[None, None, :]
        apart = leading * piece if width == 16 else 16 * piece
        return np.asarray(row // 8 * stride + row % 8 * width + apart)
    elements = 4 * ELEMENTS[matrix.kind].per_word
    size = 16 // elements  # bytes of an element
    first = (np.arange(matrix.rows // elements)[None, :, None] * elements + skipped) * size
    depth = np.arange(K_BYTES // size)[None, None, :]
    if width == 16:
        return np.asarray(first // 16 * stride + depth // 8 * leading + depth % 8 * 16)
    return np.asarray(first // width * leading + depth // 8 * stride + depth % 8 * width + first % width)


def _fetch(group: Group, descriptor: Array, matrix: Matrix, skipped: Array, whole: Array) -> Array:
    """Returns the matrices, rows by K, of each block; `skipped` rows come first in memory."""
    described = descriptor.reshape(-1, WARP)[:, 0]
    start, leading, stride = (
        ((described >> np.uint64(at)) & np.uint64(0x3FFF)).astype(np.int64) << 4 for at in (0, 16, 32)
    )
    width = _WIDTHS[int(described[whole][0] >> np.uint64(62))]
    if ((described >> np.uint64(49)) & np.uint64(7))[whole].any():
        raise group.machine.unsupported(group.at, "a base offset in a descriptor")
    per_word = ELEMENTS[matrix.kind].per_word
    offset = _offsets(matrix, width, tuple(zip(leading.tolist(), stride.tolist(), skipped.tolist(), strict=True)))
    address = swizzle(start[:, None, None] + offset, width)
    data = _load(group, address, whole)
    decoded = ELEMENTS[matrix.kind].decode(data)
    if not matrix.transposed:
        return decoded.reshape(len(described), matrix.rows, -1)
    parts = decoded.reshape(len(described), matrix.rows // (4 * per_word), -1, 4 * per_word)
    return parts.transpose(0, 1, 3, 2).reshape(len(described), matrix.rows, -1)


def _load(group: Group, address: Array, whole: Array) -> Array:
    """Returns the 16-byte pieces at addresses, axes (block, piece, piece, word), and notes that they are read."""
    machine = group.machine
    within = address - SHARED_START
    if (within[whole] < 0).any() or (within[whole] + 16 > machine.shared.size).any():
        raise machine.fault(group, FaultKind.OUT_OF_BOUNDS, "a matrix descriptor points outside of shared memory")
    within = np.where(whole[:, None, None], within, 0)
    blocks = np.arange(group.blocks)
    flat = within + (blocks * machine.shared.stride)[:, None, None]
    if machine.shared_shadow is not None:
        read = flat[whole].reshape(-1)
        rows = np.repeat((group.slot * group.blocks + blocks)[whole], address[0].size)
        machine.shared_shadow.read(group, read, 16, rows)
        group.matrix_reads.append([None, group.at, read, rows])
    return machine.shared.load(flat.reshape(-1), 4, 4).reshape(*address.shape, 4)


def _commit(group: Group) -> None:
    for read in group.matrix_reads:
        read[0] = 0 if read[0] is None else read[0] + 1


def _wait(left: int) -> Step:
    """Reads may happen until they are waited for: they are noted once more then."""

    def run(group: Group) -> None:
        done = [read for read in group.matrix_reads if read[0] is not None and read[0] >= left]
        group.matrix_reads = [read for read in group.matrix_reads if read[0] is None or read[0] < left]
        shadow, here = group.machine.shared_shadow, group.at
        for _, at, flat, rows in done:
            if shadow is not None:
                group.at = at
                shadow.read(group, flat, 16, rows)
        group.at = here

    return run
