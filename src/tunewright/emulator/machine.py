"""The state of one batch of blocks, and the faults that are found while it is executed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tunewright.backends.grid_launch import WARP, GridLaunch
from tunewright.emulator.barriers import Barriers
from tunewright.emulator.clocks import Clocks
from tunewright.emulator.counters import Counters
from tunewright.emulator.dead_reads import AlteredReads, DoubtfulReads
from tunewright.emulator.faults import FaultKind, FaultList, KernelFault, PtxFault, UnsupportedInstruction
from tunewright.emulator.group import Group
from tunewright.emulator.memory import GlobalMemory, LocalMemory, SharedMemory
from tunewright.emulator.races import GlobalShadow, SharedShadow
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.program import Program


@dataclass
class Shared:
    """What all batches of a launch share: memory, counters, faults, and the shadow of global memory if wanted."""

    program: Program
    launch: GridLaunch
    memory: GlobalMemory
    counters: Counters
    faults: FaultList
    shadow: GlobalShadow | None
    random: np.random.Generator | None = None
    altered: AlteredReads | None = None
    doubts: DoubtfulReads = field(default_factory=DoubtfulReads)


class Machine:
    """Memories, clocks and groups of the blocks of one batch."""

    def __init__(self, shared: Shared, block_ids: Array, first_row: int, warps: Array) -> None:
        self.program, self.launch = shared.program, shared.launch
        self.memory, self.counters, self._faults = shared.memory, shared.counters, shared.faults
        self.random, self.altered, self._doubts = shared.random, shared.altered, shared.doubts
        self.block_ids, self.first_row = block_ids, first_row
        self.slots, blocks = self.launch.warps, len(block_ids)
        self.is_atomic = self.program.is_atomic
        self.shared = SharedMemory(self.program.shared_size, blocks)
        self.local = LocalMemory(self.program.local_size, blocks * WARP, self.slots)
        self.clocks = Clocks(self.slots, blocks, self.program.synchronizes_blocks)
        self.ordered_before = np.zeros(self.slots * blocks, np.int64)
        self.global_shadow = shared.shadow
        self.shared_shadow = None
        if shared.shadow is not None:
            self.shared_shadow = SharedShadow(self, self.shared.bytes.size, self.program.shared_grain, self.clocks)
        self.barriers = Barriers(self)
        self.mbarriers: dict[int, Any] = {}
        self.groups = [Group(self, slot, warps[slot], self.program.kinds) for slot in range(self.slots)]

    def shuffled(self, count: int) -> Array:
        """Returns the numbers below `count` in an order that the seed decides."""
        return np.arange(count) if self.random is None else self.random.permutation(count)

    def fault(self, group: Group, kind: FaultKind, message: str) -> KernelFault:
        """Returns the exception for a fault at the group's instruction, and notes it."""
        fault = PtxFault(kind, message, self.program.places[group.at])
        self._faults.add(fault)
        return KernelFault(fault)

    def note(self, group: Group, kind: FaultKind, message: str, other: int | None = None) -> None:
        """Notes a fault after which execution continues."""
        places = self.program.places
        self._faults.add(PtxFault(kind, message, places[group.at], None if other is None else places[other]))

    def doubt(self, group: Group, message: str, other: int, reads: tuple[Array, Array]) -> None:
        """Sets a race of reads aside: their instructions and rows."""
        places = self.program.places
        fault = PtxFault(FaultKind.RACE, message, places[group.at], places[other])
        self._doubts.add(fault, reads[0], reads[1] + self.first_row)

    def unsupported(self, at: int, detail: str) -> UnsupportedInstruction:
        """Returns the exception for something that is not known."""
        return UnsupportedInstruction(self.program.places[at], detail)
