"""Additions with a carry, of which numbers of more than 64 bits are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tunewright.emulator import integer_ops, types
from tunewright.emulator.builders import builds
from tunewright.emulator.faults import UnsupportedInstruction
from tunewright.emulator.operands import Operands, Step
from tunewright.emulator.ptx_text import Instruction
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.group import Group


@builds("addc", "subc", "madc")
def with_carry(ops: Operands, item: Instruction) -> Step:
    """`add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc` and `madc` of 32-bit integers."""
    kind = integer_ops.last_type(item)
    if types.width(kind) != 4 or item.opcode == "mul" or types.is_float(kind):
        raise UnsupportedInstruction(item.place)
    readers = [ops.read(item, text, kind) for text in item.operands[1:]]
    write = ops.write(item, item.operands[0], "u32")
    takes, leaves = item.opcode.endswith("c"), item.has("cc")
    base = item.opcode[:3]
    multiply = integer_ops.half_product(kind, high=item.has("hi"))

    def run(group: Group) -> None:
        sources = [group.full(read(group)) for read in readers]
        if base == "mad":
            sources = [multiply(*sources[:2]), sources[2]]
        left, right = (_unsigned(source) for source in sources)
        carry = group.carry.astype(np.int64) * takes
        total = left - right - carry if base == "sub" else left + right + carry
        write(group, np.asarray(total, np.int64) & 0xFFFFFFFF)
        if leaves:
            np.copyto(group.carry, total < 0 if base == "sub" else total > 0xFFFFFFFF, where=group.mask)

    return run


def _unsigned(values: Array) -> Array:
    return values.astype(np.int64) & 0xFFFFFFFF
