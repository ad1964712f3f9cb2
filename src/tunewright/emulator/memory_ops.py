"""Loads, stores, prefetches, and calls of the few functions that every CUDA program has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tunewright.emulator import access, types
from tunewright.emulator.builders import builds, nothing
from tunewright.emulator.faults import FaultKind, UnsupportedInstruction
from tunewright.emulator.integer_ops import last_type
from tunewright.emulator.memory import Memory
from tunewright.emulator.operands import Operands, Step
from tunewright.emulator.ptx_text import Instruction
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.group import Group

_STRONG = {"volatile", "relaxed", "acquire", "release", "mmio"}


def _raw(kind: str) -> str:
    return f"b{8 * types.width(kind)}"


@builds("ld", "ldu", located=True)
def load(ops: Operands, item: Instruction) -> Step:
    """`ld` from any memory, of one to eight elements."""
    kind, names, space = last_type(item), ops.vector(item.operands[0]), access.space_of(item)
    if space == "param" and item.operands[1].strip("[] ").split("+")[0].strip() not in ops.symbols:
        return nothing  # the result of a call
    width, count = types.width(kind), len(names)
    if space == "param" and (values := ops.parameter(item.operands[1], kind, count)) is not None:
        return _load_parameter(ops, item, values, kind)
    base, offset = ops.address(item, item.operands[1])
    scatters = [ops.scatter(item, name, kind) for name in names]
    strong, acquire = bool(_STRONG & set(item.modifiers)), item.has("acquire")
    quiet = space in ("param", "const")

    def run(group: Group) -> None:
        address = base(group)
        for memory in access.memories(group, space, address):
            flat = memory.locate(group, address, offset, width * count)
            if not flat.size:
                continue
            if acquire:
                acquire_rows(group, memory, flat)
            if not quiet:
                access.observe_read(group, memory, flat, width * count, strong=strong)
            values, lanes = memory.load(flat, width, count), group.lanes()
            if group.machine.altered is not None and memory is group.machine.memory:
                rows = access.rows_of(group) + group.machine.first_row
                values = group.machine.altered.apply(group.at, rows, values)
            for number, scatter in enumerate(scatters):
                scatter(group, lanes, np.ascontiguousarray(values[:, number]))

    return run


def _load_parameter(ops: Operands, item: Instruction, values: Array, kind: str) -> Step:
    """Loads what is known before the kernel starts."""
    writers = [ops.write(item, name, kind) for name in ops.vector(item.operands[0])]

    def run(group: Group) -> None:
        for write, value in zip(writers, values, strict=True):
            write(group, np.asarray(value).view(types.dtype(kind)))

    return run


def acquire_rows(group: Group, memory: Memory, flat: Array) -> None:
    """Takes over what was released at a place, for each warp."""
    rows = access.rows_of(group)
    clocks = group.machine.clocks
    for row, place in dict(zip(rows.tolist(), flat.tolist(), strict=True)).items():
        clocks.acquire(access.sync_key(memory, place), row)
        if memory is group.machine.memory:
            group.machine.ordered_before[row] = group.machine.first_row


def release_rows(group: Group, memory: Memory, flat: Array) -> None:
    """Leaves what each warp knows at a place."""
    rows = access.rows_of(group)
    for row, place in dict(zip(rows.tolist(), flat.tolist(), strict=True)).items():
        group.machine.clocks.release(access.sync_key(memory, place), row)


@builds("st", located=True)
def store(ops: Operands, item: Instruction) -> Step:
    """`st` to any memory, of one to eight elements."""
    kind, names, space = last_type(item), ops.vector(item.operands[1]), access.space_of(item)
    if space == "param":
        return nothing  # an argument of a call
    width = types.width(kind)
    base, offset = ops.address(item, item.operands[0])
    readers = [ops.read(item, name, _raw(kind)) for name in names]
    strong, release = bool(_STRONG & set(item.modifiers)), item.has("release")

    def run(group: Group) -> None:
        address = base(group)
        for memory in access.memories(group, space, address):
            flat = memory.locate(group, address, offset, width * len(names))
            if not flat.size:
                continue
            lanes = group.lanes()
            parts = [group.full(read(group)) for read in readers]
            values = np.stack(parts if lanes is None else [part[lanes] for part in parts], axis=1)
            access.store_checked(group, memory, flat, values, strong=strong)
            if release:
                release_rows(group, memory, flat)

    return run


@builds(
    "prefetch", "prefetchu", "discard", "applypriority", "createpolicy", "nanosleep", "griddepcontrol", "setmaxnreg"
)
def hint(ops: Operands, item: Instruction) -> Step:
    """Instructions that change no result here: hints about caches, time and registers."""
    return nothing


@builds("call", located=True)
def call(ops: Operands, item: Instruction) -> Step:
    """`call` of `vprintf`, which prints nothing here, and of `__assertfail`, which is a fault."""
    text = " ".join(item.operands)
    if "vprintf" in text:
        return nothing
    if "__assertfail" not in text:
        raise UnsupportedInstruction(item.place, "a call of a function that the PTX does not define")

    def run(group: Group) -> None:
        raise group.machine.fault(group, FaultKind.ASSERTION, "an assertion of the kernel failed")

    return run
