"""`cp.async.bulk.tensor`: boxes of tensors copied between global and shared memory.

A load arrives as late as a wait at its mbarrier allows. What lies outside of the tensor is zero, and not written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tunewright.emulator import access, mbarriers, tensor_maps
from tunewright.emulator.builders import nothing
from tunewright.emulator.faults import FaultKind, UnsupportedInstruction
from tunewright.emulator.operands import Operands, Reader, Step
from tunewright.emulator.ptx_text import Instruction
from tunewright.emulator.swizzle import swizzle
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.group import Group

_TENSOR = re.compile(r"\[\s*([%\w$@+ ]+?)\s*,\s*\{([^}]*)\}\s*\]")


@dataclass
class TensorLoad:
    """A load under way: which group issued it where, its clock, and the elements with their places."""

    group: Group
    at: int
    row: int
    clock: int
    flat: Array
    data: Array
    size: int

    def deliver(self, waiter: Group, key: tuple[str, int]) -> None:
        """Writes the data; whoever waits at the mbarrier is ordered after the load."""
        machine = waiter.machine
        machine.shared.store(self.flat, self.data)
        machine.clocks.pass_on(("copy", id(self)), key)
        if machine.shared_shadow is not None:
            here, self.group.at = self.group.at, self.at
            rows = np.full(self.flat.size, self.row)
            machine.shared_shadow.end_copy(self.group, self.flat, self.data.dtype.itemsize, rows, self.clock)
            self.group.at = here


def bulk_copy(ops: Operands, item: Instruction) -> Step:
    """`cp.async.bulk` and what belongs to it."""
    if item.has("commit_group") or item.has("wait_group"):
        return nothing  # stores are complete when they are issued
    if not item.has("tensor") or {"im2col", "im2col_no_offs"} & set(item.modifiers):
        raise UnsupportedInstruction(item.place)
    loads = item.operands[0].startswith("[") and not _TENSOR.fullmatch(item.operands[0])
    if loads:
        if any(word.startswith("multicast") for word in item.modifiers):
            raise UnsupportedInstruction(item.place)
        return _load(ops, item)
    return _store(ops, item)


def _tensor_operand(ops: Operands, item: Instruction, text: str) -> tuple[Reader, list[Reader]]:
    found = _TENSOR.fullmatch(text)
    if found is None:
        raise UnsupportedInstruction(item.place)
    coordinates = [ops.read(item, word.strip(), "s32") for word in found[2].split(",")]
    return ops.read(item, found[1].strip(), "u64"), coordinates


def _box(group: Group, tensor: tensor_maps.TensorMap, corner: list[int]) -> tuple[Array, Array]:
    """Returns positions in global memory of the elements of a box, innermost axis last, and which are in the tensor."""
    position, inside = np.zeros(1, np.int64), np.ones(1, np.bool_)
    for axis in reversed(range(len(tensor.box))):
        index = corner[axis] + np.arange(tensor.box[axis])
        position = (position[:, None] + index * tensor.strides[axis]).reshape(-1)
        inside = (inside[:, None] & (index >= 0) & (index < tensor.sizes[axis])).reshape(-1)
    memory = group.machine.memory
    number, within = (tensor.address >> 40) - 1, tensor.address & ((1 << 40) - 1)
    if not 0 <= number < len(memory.sizes):
        raise group.machine.fault(group, FaultKind.OUT_OF_BOUNDS, "a tensor map with an address in no buffer")
    place = within + position
    if inside.any() and (place[inside].max() + tensor.element > memory.sizes[number] or place[inside].min() < 0):
        raise group.machine.fault(
            group, FaultKind.OUT_OF_BOUNDS, f"a tensor map reaches outside of {memory.names[number]}"
        )
    return np.where(inside, memory.starts[number] + place, 0), inside


def _shared_places(group: Group, lane: int, address: Array, tensor: tensor_maps.TensorMap) -> Array:
    """Returns positions of the elements of a box in shared memory."""
    count = int(np.prod(tensor.box))
    start = int(group.full(address)[lane]) & 0xFFFFFF
    if start % 128 or (tensor.swizzle > 16 and tensor.box[0] * tensor.element > tensor.swizzle):
        raise group.machine.fault(group, FaultKind.MISALIGNED, "a box in shared memory must begin at 128 bytes and "
                                  "its rows must not be wider than its swizzle")  # fmt: skip
    where = swizzle(start + np.arange(count) * tensor.element, tensor.swizzle)
    within = where - 1024
    if within.min() < 0 or within.max() + tensor.element > group.machine.shared.size:
        raise group.machine.fault(group, FaultKind.OUT_OF_BOUNDS, "a box does not fit into shared memory")
    return np.asarray(where + group.shared_base[lane])


def _each(group: Group, at: Reader, coordinates: list[Reader]) -> list[tuple[int, Any, list[int]]]:
    """Returns lane, tensor and corner of each active lane."""
    lanes = np.arange(group.size) if group.mask is True else np.flatnonzero(group.mask)
    addresses = group.full(at(group))
    corners = [group.full(read(group)) for read in coordinates]
    return [
        (int(lane), tensor_maps.load(group, int(addresses[lane])), [int(corner[lane]) for corner in corners])
        for lane in lanes
    ]


def _load(ops: Operands, item: Instruction) -> Step:
    target, offset = ops.address(item, item.operands[0])
    at, coordinates = _tensor_operand(ops, item, item.operands[1])
    barrier, barrier_offset = ops.address(item, item.operands[2])

    def run(group: Group) -> None:
        machine = group.machine
        places = machine.shared.locate(group, barrier(group), barrier_offset, mbarriers.SIZE).tolist()
        where = target(group) + np.asarray(offset, target(group).dtype)
        for (lane, tensor, corner), place in zip(_each(group, at, coordinates), places, strict=True):
            flat, row = _shared_places(group, lane, where, tensor), int(group.row[lane])
            source, inside = _box(group, tensor, corner)
            data = np.where(inside[:, None], machine.memory.load(source, tensor.element, 1), 0)
            rows = np.full(flat.size, row)
            with access.masked(group, np.arange(group.size) == lane):
                _note_global(group, source[inside], rows[inside], tensor.element, store=False)
                if machine.shared_shadow is not None:
                    machine.shared_shadow.begin_copy(group, flat, tensor.element, rows)
            size = flat.size * tensor.element
            load = TensorLoad(group, group.at, row, int(machine.clocks.own[row]), flat, data, size)
            machine.clocks.release(("copy", id(load)), row)
            mbarriers.find(group, place).copies.append(load)

    return run


def _note_global(group: Group, flat: Array, rows: Array, size: int, *, store: bool) -> None:
    machine, verb = group.machine, "store" if store else "load"
    machine.counters.add(f"{verb}_requests", group.at, 1)
    machine.counters.add(f"{verb}_bytes", group.at, size * flat.size)
    machine.counters.add(f"{verb}_sectors", group.at, int(np.unique(flat >> 5).size))
    if machine.global_shadow is not None and flat.size:
        note = machine.global_shadow.write if store else machine.global_shadow.read
        note(group, flat, size, rows)


def _store(ops: Operands, item: Instruction) -> Step:
    at, coordinates = _tensor_operand(ops, item, item.operands[0])
    source, offset = ops.address(item, item.operands[1])

    def run(group: Group) -> None:
        machine = group.machine
        held = source(group) + np.asarray(offset, source(group).dtype)
        for lane, tensor, corner in _each(group, at, coordinates):
            flat = _shared_places(group, lane, held, tensor)
            target, inside = _box(group, tensor, corner)
            rows = np.full(flat.size, int(group.row[lane]))
            if machine.shared_shadow is not None:
                machine.shared_shadow.read(group, flat, tensor.element, rows)
            data = machine.shared.load(flat, tensor.element, 1)
            _note_global(group, target[inside], rows[inside], tensor.element, store=True)
            machine.memory.store(target[inside], data[inside])

    return run
