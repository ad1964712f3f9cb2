"""Grid and block of a launch on a GPU."""

from __future__ import annotations

from math import prod

import msgspec

WARP = 32
"""Threads of a warp on NVIDIA's GPUs."""

Shape = tuple[int, int, int]


class GridLaunch(msgspec.Struct, frozen=True):
    """Blocks of a grid, threads of a block, and the bytes of shared memory that the launch adds."""

    grid: Shape
    block: Shape
    shared: int = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(self.block)

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return -(-self.threads // WARP)
