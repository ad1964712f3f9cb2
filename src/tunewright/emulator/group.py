"""A group of warps that are executed together: one warp of every block of a batch.

Blocks do not see each other except through global memory, so their warps can share numpy calls. Warps of one block
are always in different groups: in which order those run is the scheduler's choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tunewright.backends.grid_launch import WARP
from tunewright.emulator import types
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.machine import Machine

RUNNING, WAITING, EXITED = 0, 1, 2

POISON = 0xFF
"""What registers and shared memory are filled with: not-a-number in every float type, -1 in every integer type."""


class Group:
    """Registers, program counters and masks of the warps of one slot."""

    def __init__(self, machine: Machine, slot: int, warps: Array, kinds: Sequence[str]) -> None:
        self.machine, self.slot = machine, slot
        self.blocks = len(warps)
        self.size = self.blocks * WARP
        self.lane = np.tile(np.arange(WARP), self.blocks)
        self.block = np.repeat(np.arange(self.blocks), WARP)
        self.row = slot * self.blocks + self.block
        self.thread = np.repeat(warps, WARP) * WARP + self.lane
        self.shared_base = machine.shared.lane_base(self.block)
        self.mask: Any = True
        self.at = 0
        self.pc = np.zeros(self.size, np.int32)
        self.state = np.where(self.thread < machine.launch.threads, RUNNING, EXITED).astype(np.int8)
        self.uniform = 0 if not self.state.any() else -1
        self.steps = 0
        self.rotates = False
        self._turn, self._turns = 0, np.zeros(self.size, np.int64)
        self.async_copies: list[Any] = []
        self.carry = np.zeros(self.size, np.bool_)
        self.committed = np.zeros(self.size, np.int32)
        self.matrix_reads: list[Any] = []
        self.waits: dict[int, Any] = {}
        self._special: dict[str, Array] = {}
        self._allocate(kinds)

    def _allocate(self, kinds: Sequence[str]) -> None:
        self.raw: list[Array] = []
        self.signed: list[Array] = []
        self.floats: list[Array] = []
        nothing = np.zeros(0)
        for kind in kinds:
            if kind == "pred":
                self.raw.append(np.zeros(self.size, np.bool_))
                self.signed.append(nothing)
                self.floats.append(nothing)
                continue
            size = types.width(kind)
            bits = np.full(self.size * size, POISON, np.uint8)
            self.raw.append(bits.view(types.UNSIGNED[size]))
            self.signed.append(bits.view(types.SIGNED[size]))
            self.floats.append(bits.view(types.FLOAT.get(size, np.uint8)))

    def lanes(self) -> Array | None:
        """Returns the numbers of the active lanes; None if all are active."""
        return None if self.mask is True else np.flatnonzero(self.mask)

    def active(self) -> Array:
        """Returns the mask as an array with a row for each warp."""
        mask = np.ones(self.size, np.bool_) if self.mask is True else self.mask
        return np.asarray(mask).reshape(self.blocks, WARP)

    def full(self, value: Array) -> Array:
        """Returns a value of one element or of all lanes as an array of all lanes."""
        return value if value.shape == (self.size,) else np.broadcast_to(value, (self.size,))

    def select(self) -> tuple[int, Any] | None:
        """Returns the lowest program counter of the lanes that run, and their mask; None if none runs."""
        if self.uniform >= 0:
            return self.uniform, True
        running = self.state == RUNNING
        counters = self.pc[running]
        if not counters.size:
            return None
        lowest = int(counters.min())
        if self.rotates:  # after a failed try, those that have not run for longest go first
            self.rotates = False
            lowest = int(counters[self._turns[running].argmin()])
        mask = running & (self.pc == lowest)
        self._turn += 1
        self._turns[mask] = self._turn
        if mask.all():
            self.uniform = lowest
            return lowest, True
        return lowest, mask

    def jump(self, mask: Any, target: int) -> None:
        """Sets the program counter of lanes."""
        if mask is True:
            self.uniform = target
            return
        if self.uniform >= 0:
            self.pc.fill(self.uniform)
            self.uniform = -1
        self.pc[mask] = target

    def stop(self, mask: Any, state: int, target: int) -> None:
        """Makes lanes wait or exit; those that wait continue at `target`."""
        mask = np.ones(self.size, np.bool_) if mask is True else mask
        self.jump(mask, target)
        self.state[mask] = state

    def special(self, name: str) -> Array:
        """Returns a special register such as `%tid.x`."""
        if name not in self._special:
            self._special[name] = self._compute_special(name)
        return self._special[name]

    def _compute_special(self, name: str) -> Array:
        launch, axis = self.machine.launch, "xyz".find(name[-1])
        base = name.rsplit(".", 1)[0]
        if base == "%tid":
            x, y, _ = launch.block
            return (self.thread % x, self.thread // x % y, self.thread // (x * y))[axis].astype(np.int64)
        if base == "%ctaid":
            return np.repeat(self.machine.block_ids[:, axis], WARP).astype(np.int64)
        if base in ("%ntid", "%nctaid", "%clusterid", "%nclusterid"):
            table = {"%ntid": launch.block, "%nctaid": launch.grid, "%nclusterid": launch.grid}
            if base in table:
                return np.full(self.size, table[base][axis], np.int64)
            return np.repeat(self.machine.block_ids[:, axis], WARP).astype(np.int64)
        one_block_cluster = {"%cluster_ctaid": 0, "%cluster_nctaid": 1, "%cluster_ctarank": 0, "%cluster_nctarank": 1}
        if base in one_block_cluster:
            return np.full(self.size, one_block_cluster[base], np.int64)
        return self._lane_special(name)

    def _lane_special(self, name: str) -> Array:
        lane = self.lane.astype(np.int64)
        one = np.int64(1)
        table = {
            "%laneid": lane,
            "%warpid": (self.thread // WARP).astype(np.int64),
            "%nwarpid": np.full(self.size, self.machine.slots, np.int64),
            "%lanemask_eq": one << lane,
            "%lanemask_lt": (one << lane) - 1,
            "%lanemask_le": (one << (lane + 1)) - 1,
            "%lanemask_gt": (1 << WARP) - (one << (lane + 1)),
            "%lanemask_ge": (1 << WARP) - (one << lane),
            "%smid": np.zeros(self.size, np.int64),
            "%nsmid": np.ones(self.size, np.int64),
            "%gridid": np.zeros(self.size, np.int64),
            "%dynamic_smem_size": np.full(self.size, self.machine.launch.shared, np.int64),
        }
        if name in ("%clock", "%clock64", "%globaltimer", "%globaltimer_lo", "%clock_hi", "%globaltimer_hi"):
            return np.full(self.size, self.steps, np.int64)
        if name not in table:
            raise self.machine.unsupported(self.at, f"the special register {name}")
        return table[name]
