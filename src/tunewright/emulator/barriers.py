"""`bar` and `barrier`: warps of a block wait for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tunewright.backends.grid_launch import WARP
from tunewright.emulator.faults import FaultKind, UnsupportedInstruction
from tunewright.emulator.group import EXITED, RUNNING, WAITING, Group
from tunewright.emulator.operands import Operands, Reader, Writer
from tunewright.emulator.ptx_text import Instruction
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.machine import Machine

End = Callable[[Group, Any, int], bool]
"""Ends a piece of code: moves the lanes of a mask on, given the next piece; returns whether others should run."""


class Reduction(NamedTuple):
    """What a warp brings to a barrier that reduces predicates, and how it gets the result."""

    values: Array
    write: Writer
    mode: str


class Barriers:
    """The barriers of all blocks of a batch, by number."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        shape = machine.slots, len(machine.block_ids)
        self.exited = np.zeros(shape, np.bool_)
        self._here: dict[int, Array] = {}
        self._waiting: dict[int, Array] = {}
        self._need: dict[int, Array] = {}
        self._place: dict[int, int] = {}

    def arrive(self, number: int, group: Group, blocks: Array, warps: int, *, waits: bool) -> None:
        """Notes the arrival of a group's warps at a barrier; `warps` is how many it is for, 0 for all."""
        shape = self.exited.shape
        here = self._here.setdefault(number, np.zeros(shape, np.bool_))
        waiting = self._waiting.setdefault(number, np.zeros(shape, np.bool_))
        here[group.slot, blocks] = True
        waiting[group.slot, blocks] = waits
        self._need.setdefault(number, np.zeros(shape[1], np.int64))[blocks] = warps
        self._place[number] = group.at

    def release(self) -> None:
        """Lets go where all have arrived."""
        for number, here in self._here.items():
            count = here.sum(axis=0)
            all_left = len(here) - (self.exited & ~here).sum(axis=0)
            need = np.where(self._need[number] > 0, self._need[number], all_left)
            done = (count > 0) & (count >= need)
            if done.any():
                self._open(number, done)

    def _open(self, number: int, done: Array) -> None:
        machine, here, waiting = self._machine, self._here[number], self._waiting[number]
        blocks = np.flatnonzero(done)
        rows = np.arange(machine.slots)[:, None] * here.shape[1] + blocks
        if here[:, blocks].all():
            machine.clocks.meet(rows)
        else:
            for column, block in enumerate(blocks):
                machine.clocks.meet(rows[here[:, block], column][:, None])
        machine.counters.add("barriers", self._place[number], len(blocks))
        self._reduce(number, blocks)
        for slot, group in enumerate(machine.groups):
            chosen = np.repeat(waiting[slot] & done, WARP) & (group.state == WAITING)
            group.state[chosen] = RUNNING
        here[:, blocks] = False
        waiting[:, blocks] = False

    def _reduce(self, number: int, blocks: Array) -> None:
        groups = [group for group in self._machine.groups if number in group.waits]
        if not groups:
            return
        shape = len(groups), self.exited.shape[1]
        yes, all_threads = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for index, group in enumerate(groups):
            alive = (group.state != EXITED).reshape(-1, WARP)
            yes[index] = (group.waits[number].values.reshape(-1, WARP) & alive).sum(axis=1)
            all_threads[index] = alive.sum(axis=1)
        total, threads = yes.sum(axis=0), all_threads.sum(axis=0)
        for group in groups:
            reduction = group.waits.pop(number)
            result = {"popc": total, "or": total > 0, "and": total == threads}[reduction.mode]
            saved, group.mask = group.mask, np.isin(group.block, blocks)
            reduction.write(group, np.repeat(result, WARP))
            group.mask = saved


def barrier_end(ops: Operands, item: Instruction) -> End:
    """Returns what a barrier does at the end of a piece of code."""
    if item.has("cluster"):
        raise UnsupportedInstruction(item.place)
    waits = not item.has("arrive")
    reads, write, mode = _reduction_operands(ops, item)
    operands = item.operands[1:] if write is not None else item.operands
    number = ops.read(item, operands[0], "u32")
    plain = operands[1:-1] if write is not None else operands[1:]
    threads = ops.read(item, plain[0], "u32") if plain else None

    def end(group: Group, mask: Any, following: int) -> bool:
        blocks = _whole_warps(group, mask)
        which = int(group.full(number(group))[np.repeat(blocks, WARP)][0])
        count = int(threads(group)[0]) // WARP if threads is not None else 0
        if reads is not None and write is not None:
            group.waits[which] = Reduction(group.full(reads(group)).copy(), write, mode)
        group.machine.barriers.arrive(which, group, blocks, count, waits=waits)
        if waits:
            group.stop(mask, WAITING, following)
        else:
            group.jump(mask, following)
        group.machine.barriers.release()
        return True

    return end


def _reduction_operands(ops: Operands, item: Instruction) -> tuple[Reader | None, Writer | None, str]:
    if not item.has("red"):
        return None, None, ""
    mode = next(word for word in item.modifiers if word in ("popc", "and", "or"))
    write = ops.write(item, item.operands[0], "u32" if mode == "popc" else "pred")
    return ops.read(item, item.operands[-1], "pred"), write, mode


def _whole_warps(group: Group, mask: Any) -> Array:
    """Returns the blocks whose warp arrives; a warp of which only a part arrives is a fault."""
    group.mask = mask
    active = group.active()
    alive = (group.state != EXITED).reshape(active.shape)
    some = active.any(axis=1)
    if (some & (active != alive).any(axis=1)).any():
        raise group.machine.fault(
            group, FaultKind.DIVERGENT_BARRIER, "only some threads of a warp reach this barrier; the others cannot pass"
        )
    return np.asarray(some)
