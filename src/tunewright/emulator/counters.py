"""Counts what a kernel does: instructions by pipe, sectors of global memory, wavefronts of shared memory.

The counts follow from what is executed and from documented rules (sectors of 32 bytes, 32 banks of 4 bytes). They are
not times, and nothing is predicted from them here.

Caches are counted by a simple model, if they are wanted: the L1 cache of a block keeps all that the block loaded, and
the L2 cache all that any executed block loaded. So misses are the fewest that are possible; a real cache has more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from tunewright.backends.grid_launch import WARP
from tunewright.emulator.ptx_text import Instruction
from tunewright.emulator.types import Array, types_of

SECTOR = 32
BANKS = 32

_PIPES = {
    "mma": "tensor", "wgmma": "tensor", "wmma": "tensor", "ldmatrix": "shared", "stmatrix": "shared", "bar": "barrier",
    "barrier": "barrier", "mbarrier": "barrier", "bra": "control", "ret": "control", "exit": "control",
    "call": "control", "ex2": "special", "lg2": "special", "sin": "special", "cos": "special", "rsqrt": "special",
    "rcp": "special", "sqrt": "special", "tanh": "special", "div": "special", "shfl": "shuffle", "redux": "shuffle",
    "vote": "shuffle", "match": "shuffle", "cvt": "convert", "mov": "move", "cvta": "move", "cp": "copy",
    "fence": "barrier", "membar": "barrier", "atom": "atomic", "red": "atomic",
}  # fmt: skip


def pipe_of(instruction: Instruction) -> str:
    """Returns the pipe that executes an instruction."""
    if instruction.opcode in ("ld", "st"):
        space = next((word for word in ("param", "const", "local") if instruction.has(word)), "")
        if any(word.startswith("shared") for word in instruction.modifiers):
            space = "shared"
        return space or "global"
    if instruction.opcode in _PIPES:
        return _PIPES[instruction.opcode]
    kinds = types_of(instruction.modifiers)
    return "float" if kinds and kinds[-1].startswith(("f", "bf")) else "integer"


class Counters:
    """Counts of one launch, by instruction."""

    FIELDS = (
        "warp_instructions", "divergent", "load_requests", "load_sectors", "load_bytes", "store_requests",
        "store_sectors", "store_bytes", "shared_requests", "shared_wavefronts", "shared_ideal", "barriers",
        "tensor_operations", "l1_misses", "l2_misses",
    )  # fmt: skip

    def __init__(self, instructions: Sequence[Instruction], *, caches: bool = False) -> None:
        self._instructions, self._caches = instructions, caches
        self._in_l1: set[int] = set()
        self._in_l2: set[int] = set()
        self.by_instruction = {field: np.zeros(len(instructions) + 1, np.int64) for field in self.FIELDS}
        self._patterns: dict[tuple[int, bytes], tuple[int, int]] = {}
        self._sectors: dict[tuple[int, bytes], int] = {}

    def add(self, field: str, at: int, amount: int) -> None:
        """Adds to a count of one instruction."""
        self.by_instruction[field][at] += amount

    def add_global(self, group: Any, address: Array, size: int, *, store: bool) -> None:
        """Counts requests, bytes and sectors of an access to global memory; `address` is of active lanes."""
        verb = "store" if store else "load"
        at, rows, lanes = group.at, self._rows(group), group.lanes()
        self.add(f"{verb}_requests", at, rows)
        self.add(f"{verb}_bytes", at, size * address.size)
        warp = group.block if lanes is None else group.block[lanes]
        relative = address - (address[0] & -SECTOR) + (warp << 44)
        key = size, relative.tobytes()
        if key not in self._sectors:
            spans = [relative + step for step in range(0, size, SECTOR)] + [relative + size - 1]
            self._sectors[key] = int(np.unique(np.concatenate(spans) // SECTOR).size)
        self.add(f"{verb}_sectors", at, self._sectors[key])
        if self._caches and not store:
            self._add_misses(group, address, size, warp)

    def _add_misses(self, group: Any, address: Array, size: int, warp: Array) -> None:
        """Counts sectors that no load of the block asked for before, and those that no block asked for."""
        block = warp + group.machine.first_row
        spans = [(block << 44) + (address + step) // SECTOR for step in (*range(0, size, SECTOR), size - 1)]
        new = set(np.unique(np.concatenate(spans)).tolist()) - self._in_l1
        self._in_l1 |= new
        sectors = {sector & ((1 << 44) - 1) for sector in new} - self._in_l2
        self._in_l2 |= sectors
        self.add("l1_misses", group.at, len(new))
        self.add("l2_misses", group.at, len(sectors))

    def add_shared(self, group: Any, flat: Array, size: int) -> None:
        """Counts requests and wavefronts of an access to shared memory, against the fewest possible."""
        lanes = group.lanes()
        self.add("shared_requests", group.at, self._rows(group))
        lane = np.arange(group.size) if lanes is None else lanes
        relative = flat - (flat[0] & -4)
        key = size, relative.tobytes() + (b"" if lanes is None else lane.tobytes())
        if key not in self._patterns:
            self._patterns[key] = _wavefronts(relative, lane, size)
        found, ideal = self._patterns[key]
        self.add("shared_wavefronts", group.at, found)
        self.add("shared_ideal", group.at, ideal)

    @staticmethod
    def _rows(group: Any) -> int:
        return group.blocks if group.mask is True else int(group.active().any(axis=1).sum())

    def totals(self) -> dict[str, int]:
        """Returns all counts, and instructions by pipe as `pipe_tensor` and so on."""
        counts = {field: int(values.sum()) for field, values in self.by_instruction.items()}
        return counts | dict(sorted(self._pipes(range(len(self._instructions))).items()))

    def by_line(self) -> list[dict[str, Any]]:
        """Returns the counts of each source line that has some, in order."""
        lines: dict[tuple[str, int], list[int]] = defaultdict(list)
        for number, instruction in enumerate(self._instructions):
            lines[instruction.place.file, instruction.place.line].append(number)
        found = []
        for (file, line), numbers in sorted(lines.items()):
            counts = {field: int(values[numbers].sum()) for field, values in self.by_instruction.items()}
            if counts["warp_instructions"]:
                used = {field: count for field, count in counts.items() if count}
                found.append({"file": file, "line": line} | used | self._pipes(numbers))
        return found

    def _pipes(self, numbers: Sequence[int] | range) -> dict[str, int]:
        counts: dict[str, int] = defaultdict(int)
        for number in numbers:
            executed = int(self.by_instruction["warp_instructions"][number])
            if executed:
                counts[f"pipe_{pipe_of(self._instructions[number])}"] += executed
        return dict(counts)


def _wavefronts(relative: Array, lane: Array, size: int) -> tuple[int, int]:
    """Returns the wavefronts of one access of some warps, and the fewest that so many bytes could take.

    Accesses of 8 and 16 bytes go by half and quarter warps; lanes that read the same word share it.
    """
    phases = max(size // 4, 1)
    phase = lane // WARP * phases + lane % WARP * phases // WARP
    words = np.concatenate([(relative + step) >> 2 for step in range(0, max(size, 1), 4)])
    phase = np.concatenate([phase] * (-(-size // 4)))
    base = int(words.min())
    unique = np.unique((phase.astype(np.int64) << 40) + (words - base))
    bank = ((unique & ((1 << 40) - 1)) + base) % BANKS
    phase = unique >> 40
    load = np.zeros((int(phase.max()) + 1, BANKS), np.int64)
    np.add.at(load, (phase, bank), 1)
    return int(load.max(axis=1).sum()), int(-(-load.sum(axis=1) // BANKS).sum())
