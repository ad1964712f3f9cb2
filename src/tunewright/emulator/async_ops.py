"""`cp.async`: copies from global to shared memory whose data arrive only when they are waited for.

Delivering at the last moment that the kernel allows makes a missing wait visible: what is read before is poison, or
the data of an earlier iteration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tunewright.emulator import access, tma
from tunewright.emulator.builders import builds
from tunewright.emulator.faults import UnsupportedInstruction
from tunewright.emulator.operands import Operands, Reader, Step
from tunewright.emulator.ptx_text import Instruction
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.group import Group


class Copy(NamedTuple):
    """A copy under way: lanes that issued it, the group it belongs to, where it goes, and its data."""

    at: int
    lanes: Array
    batch: Array
    flat: Array
    data: Array


@builds("cp", located=True)
def copy(ops: Operands, item: Instruction) -> Step:
    """`cp.async` and what belongs to it."""
    if item.modifiers[:1] != ("async",):
        raise UnsupportedInstruction(item.place)
    if item.has("bulk"):
        return tma.bulk_copy(ops, item)
    if item.has("commit_group"):
        return _commit
    if item.has("wait_group") or item.has("wait_all"):
        return _wait(0 if item.has("wait_all") else int(item.operands[0], 0), everything=item.has("wait_all"))
    if item.has("mbarrier"):
        raise UnsupportedInstruction(item.place)
    return _issue(ops, item)


def _commit(group: Group) -> None:
    group.committed[group.mask if group.mask is not True else slice(None)] += 1


def _issue(ops: Operands, item: Instruction) -> Step:
    target, target_offset = ops.address(item, item.operands[0])
    source, source_offset = ops.address(item, item.operands[1])
    size = int(item.operands[2], 0)
    rest = item.operands[3:]
    if item.has("L2::cache_hint"):
        rest = rest[:-1]
    count: Reader | None = ops.read(item, rest[0], "u32") if rest else None

    def run(group: Group) -> None:
        machine = group.machine
        flat = machine.shared.locate(group, target(group), target_offset, size)
        lanes = np.arange(group.size) if group.mask is True else np.flatnonzero(group.mask)
        wanted = np.full(group.size, size) if count is None else group.full(count(group)).astype(np.int64)
        data = _read_sources(group, source(group), source_offset, np.minimum(wanted, size), size)[lanes]
        machine.counters.add_shared(group, flat, size)
        if machine.shared_shadow is not None:
            machine.shared_shadow.begin_copy(group, flat, size, access.rows_of(group))
        group.async_copies.append(Copy(group.at, lanes, group.committed[lanes].copy(), flat, data))

    return run


def _read_sources(group: Group, address: Array, offset: int, wanted: Array, size: int) -> Array:
    """Returns the bytes that each lane copies; what is not asked for is zero and not read."""
    data = np.zeros((group.size, size), np.uint8)
    memory = group.machine.memory
    for count in np.unique(wanted).tolist():
        if count == 0:
            continue
        with access.masked(group, wanted == count) as some:
            if not some:
                continue
            flat = memory.locate(group, address, offset, count if count == size else 1)
            access.observe_read(group, memory, flat, count if count == size else 1)
            lanes = np.arange(group.size) if group.mask is True else np.flatnonzero(group.mask)
            data[lanes[:, None], np.arange(count)] = memory.bytes[flat[:, None] + np.arange(count)]
    return data


def _wait(left: int, *, everything: bool) -> Step:
    def run(group: Group) -> None:
        active = group.active().reshape(-1)
        kept = []
        for copied in group.async_copies:
            limit = group.committed[copied.lanes] - left + everything
            done = active[copied.lanes] & (copied.batch < limit)
            if done.all():
                _deliver(group, copied)
                continue
            if done.any():
                _deliver(group, _part(copied, done))
                copied = _part(copied, ~done)
            kept.append(copied)
        group.async_copies = kept

    return run


def _part(copied: Copy, which: Array) -> Copy:
    return Copy(copied.at, *(part[which] for part in copied[1:]))


def _deliver(group: Group, copied: Copy) -> None:
    machine, size = group.machine, copied.data.shape[1]
    machine.shared.store(copied.flat, np.ascontiguousarray(copied.data).view(np.uint32))
    if machine.shared_shadow is not None:
        waited_at, group.at = group.at, copied.at
        machine.shared_shadow.end_copy(group, copied.flat, size, group.row[copied.lanes])
        group.at = waited_at
