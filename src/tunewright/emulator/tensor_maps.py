"""Tensor maps: 128 bytes that describe a tensor for `cp.async.bulk.tensor`.

Their real encoding is not documented and no kernel may look inside, so the fields are kept in an order of our own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tunewright.emulator import access
from tunewright.emulator.builders import builds
from tunewright.emulator.faults import FaultKind, UnsupportedInstruction
from tunewright.emulator.operands import Operands, Step
from tunewright.emulator.ptx_text import Instruction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tunewright.emulator.group import Group

SIZE = 128
_FIELDS = {
    "global_address": 0, "rank": 8, "elemtype": 12, "box_dim": 16, "global_dim": 36, "element_stride": 56,
    "interleave_layout": 76, "swizzle_mode": 80, "fill_mode": 84, "global_stride": 88,
}  # fmt: skip
ELEMENT_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 4, 9: 8, 10: 2, 11: 4, 12: 4}
SWIZZLE_WIDTHS = {0: 16, 1: 32, 2: 64, 3: 128}


class TensorMap(NamedTuple):
    """A tensor: its address, bytes of an element, sizes and strides in bytes from the innermost axis, and the box."""

    address: int
    element: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


def decode(body: bytes) -> TensorMap | None:
    """Returns a map from its bytes; None if they are none."""
    words = np.frombuffer(body[:120], np.uint32)
    rank = int(words[2]) + 1
    if rank > 5 or int(words[3]) not in ELEMENT_BYTES or int(words[19]) or int(words[20]) not in SWIZZLE_WIDTHS:
        return None
    element = ELEMENT_BYTES[int(words[3])]
    outer = np.frombuffer(body[88 : 88 + 8 * (rank - 1)], np.uint64).tolist()
    if any(int(step) != 1 for step in words[14 : 14 + rank]):
        return None
    return TensorMap(
        int.from_bytes(body[:8], "little"),
        element,
        tuple(words[9 : 9 + rank].tolist()),
        (element, *outer),
        tuple(words[4 : 4 + rank].tolist()),
        SWIZZLE_WIDTHS[int(words[20])],
    )


def encode(tensor: TensorMap, elemtype: int) -> bytes:
    """Returns the bytes of a map, for maps that are arguments of a kernel."""
    words = np.zeros(32, np.uint32)
    rank = len(tensor.sizes)
    words[:2] = np.array([tensor.address], np.uint64).view(np.uint32)
    words[2], words[3] = rank - 1, elemtype
    words[4 : 4 + rank], words[9 : 9 + rank], words[14 : 14 + rank] = tensor.box, tensor.sizes, 1
    words[20] = {width: mode for mode, width in SWIZZLE_WIDTHS.items()}[tensor.swizzle]
    outer: Sequence[int] = tensor.strides[1:]
    words[22 : 22 + 2 * len(outer)] = np.array(outer, np.uint64).view(np.uint32)
    return words.tobytes()


@builds("tensormap", located=True)
def tensor_map(ops: Operands, item: Instruction) -> Step:
    """`tensormap.replace` and `tensormap.cp_fenceproxy`."""
    if item.has("cp_fenceproxy"):
        return _copy(ops, item)
    name = next((word for word in item.modifiers if word in _FIELDS), "")
    if not name:
        raise UnsupportedInstruction(item.place)
    base, offset = ops.address(item, item.operands[0])
    size = 8 if item.modifiers[-1] == "b64" else 4
    place = int(item.operands[1], 0) if len(item.operands) == 3 else 0
    value = ops.read(item, item.operands[-1], item.modifiers[-1])
    shift = _FIELDS[name] + place * size
    space = access.space_of(item)

    def run(group: Group) -> None:
        address = base(group)
        for memory in access.memories(group, space, address):
            flat = memory.locate(group, address, offset, 8) + shift
            lanes = group.lanes()
            values = group.full(value(group))
            values = values if lanes is None else values[lanes]
            access.observe_write(group, memory, flat & -4, 4, None)
            spread = np.ascontiguousarray(values).view(np.uint8).reshape(-1, size)
            memory.bytes[flat[:, None] + np.arange(size)] = spread

    return run


def _copy(ops: Operands, item: Instruction) -> Step:
    target, target_offset = ops.address(item, item.operands[0])
    source, source_offset = ops.address(item, item.operands[1])

    def run(group: Group) -> None:
        machine = group.machine
        with access.masked(group, group.lane == 0):
            to = machine.memory.locate(group, target(group), target_offset, SIZE)
            held = machine.shared.locate(group, source(group), source_offset, 16)
            data = machine.shared.bytes[held[:, None] + np.arange(SIZE)]
            if machine.global_shadow is not None:
                machine.global_shadow.write(group, to, SIZE, access.rows_of(group))
            machine.memory.bytes[to[:, None] + np.arange(SIZE)] = data

    return run


def load(group: Group, address: int) -> TensorMap:
    """Returns the map at a global address."""
    memory = group.machine.memory
    number, within = (address >> 40) - 1, address & ((1 << 40) - 1)
    if not 0 <= number < len(memory.sizes) or within + SIZE > int(memory.sizes[number]):
        raise group.machine.fault(group, FaultKind.OUT_OF_BOUNDS, f"a tensor map at {address:#x}, outside of buffers")
    body = memory.contents(number)[within : within + SIZE].tobytes()
    found = decode(body)
    if found is None:
        raise group.machine.unsupported(group.at, "a tensor map with this element type, stride or layout")
    return found
