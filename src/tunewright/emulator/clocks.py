"""Vector clocks: which accesses of a warp happened before what another warp does now.

Each warp counts its releases. A barrier, an mbarrier, or an atomic that one thread of a warp executes passes on what
a warp knows of the others. Accesses of different warps are ordered only if such a chain leads from one to the other.
"""

from __future__ import annotations

import numpy as np

from tunewright.emulator.types import Array


class Clocks:
    """The clocks of all warps of a batch.

    A row is a warp, numbered by slot and block. With `across` each warp has a column for every warp, else only for
    those of its own block, which is enough where blocks do not synchronize.
    """

    def __init__(self, slots: int, blocks: int, across: bool) -> None:
        self.slots, self.blocks, self.across = slots, blocks, across
        rows = slots * blocks
        self._known = np.zeros((rows, rows if across else slots), np.int32)
        self._column = np.arange(rows) if across else np.repeat(np.arange(slots), blocks)
        self.own = np.ones(rows, np.int32)
        self._known[np.arange(rows), self._column] = 1
        self._released: dict[tuple[str, int], Array] = {}
        self._floors: Array | None = None

    def floor(self, slot: int) -> int:
        """Returns a clock up to which the warps of a slot know of everything in their blocks: a fast first test."""
        if self._floors is None:
            rows = np.arange(self.slots * self.blocks)
            known = self.knows_block(rows)
            known[rows, rows // self.blocks] = np.iinfo(np.int32).max
            self._floors = known.min(axis=1).reshape(self.slots, self.blocks).min(axis=1)
        return int(self._floors[slot])

    def knows(self, rows: Array, others: Array) -> Array:
        """Returns the latest clock of `others` that `rows` know of; 0 if blocks do not synchronize."""
        known = self._known[rows, self._column[others]]
        if self.across:
            return np.asarray(known)
        return np.where(rows % self.blocks == others % self.blocks, known, 0)

    def knows_block(self, rows: Array) -> Array:
        """Returns for each row what it knows of every slot of its block."""
        if not self.across:
            return np.asarray(self._known[rows])  # a copy
        columns = np.arange(self.slots) * self.blocks + (rows % self.blocks)[:, None]
        return np.asarray(self._known[rows[:, None], columns])

    def meet(self, rows: Array) -> None:
        """Lets warps meet at a barrier: an array of a row for each warp and a column for each block."""
        self._floors = None
        self._known[rows] = self._known[rows].max(axis=0)
        self._advance(rows.reshape(-1))

    def _advance(self, rows: Array) -> None:
        self.own[rows] += 1
        self._known[rows, self._column[rows]] = self.own[rows]

    def release(self, key: tuple[str, int], row: int) -> None:
        """Leaves what a warp knows at a place."""
        known = self._released.get(key)
        mine = self._known[row]
        self._released[key] = mine.copy() if known is None else np.maximum(known, mine)
        self._advance(np.array([row]))

    def acquire(self, key: tuple[str, int], row: int) -> None:
        """Takes what was left at a place."""
        known = self._released.get(key)
        if known is not None:
            self._floors = None
            np.maximum(self._known[row], known, out=self._known[row])
            self._known[row, self._column[row]] = self.own[row]

    def pass_on(self, source: tuple[str, int], target: tuple[str, int]) -> None:
        """Moves what was left at one place to another."""
        left = self._released.pop(source)
        known = self._released.get(target)
        self._released[target] = left if known is None else np.maximum(known, left)

    def forget(self, key: tuple[str, int]) -> None:
        """Clears a place."""
        self._released.pop(key, None)
