"""Reads that race with a store of their own block, although nothing depends on what they read.

Where a value is the same in all warps, compilers let every warp load it and one of them store what follows from it. The
loads of the others race with that store, but their values are not used. So such races are set aside, and the kernel is
executed again with other values in their place. If it leaves the same memory, they are no faults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tunewright.emulator.faults import FaultList, PtxFault
from tunewright.emulator.types import Array

Change = Callable[[Array], Array]


def _fill(values: Array, sign: int) -> Array:
    """Returns a number that is large as an integer and as a float, with a sign."""
    size = values.dtype.itemsize
    return np.full_like(values, int.from_bytes(bytes([sign, *[0x7F] * (size - 1)])))


CHANGES: tuple[Change, ...] = (
    np.invert,
    lambda values: values + values.dtype.type(1),
    lambda values: _fill(values, 0x7F),
    lambda values: _fill(values, 0xFF),
)
"""What is put in place of a value that was read: its bits inverted, the next number, a large and a negative one.

A value that is only compared with a bound matters, too, so one of these must lie beyond the bound.
"""


class DoubtfulReads:
    """The races that are set aside, and which warps read at which instruction."""

    def __init__(self) -> None:
        self.faults = FaultList()
        self.rows: dict[int, set[int]] = {}

    def add(self, fault: PtxFault, instructions: Array, rows: Array) -> None:
        """Sets a race aside; rows are counted over all batches."""
        self.faults.add(fault)
        for at, row in set(zip(instructions.tolist(), rows.tolist(), strict=True)):
            self.rows.setdefault(at, set()).add(row)

    def alterations(self) -> list[AlteredReads]:
        """Returns what to execute the kernel with to see whether these reads matter."""
        return [AlteredReads(self.rows, change) for change in CHANGES] if self.rows else []


class AlteredReads:
    """Puts other values in place of those that some warps read at some instructions."""

    def __init__(self, rows: Mapping[int, set[int]], change: Change) -> None:
        self._rows = {at: np.array(sorted(some)) for at, some in rows.items()}
        self._change = change

    def apply(self, at: int, rows: Array, values: Array) -> Array:
        """Returns the values that lanes get at an instruction; `rows` are those of the lanes."""
        altered = self._rows.get(at)
        if altered is None:
            return values
        chosen = np.isin(rows, altered)[:, None]
        return np.where(chosen, self._change(values), values)
