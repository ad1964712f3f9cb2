"""Which blocks of a large grid to execute: corners and edges, where masks matter, and some at random."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from tunewright.emulator.types import Array

Shape = tuple[int, int, int]


def choose_blocks(grid: Shape, count: int | Sequence[Shape] | None, seed: int) -> Array:
    """Returns ids of blocks, a row each, in the order in which a device starts them; `count` may name them itself."""
    if isinstance(count, Sequence):
        return np.asarray(count, dtype=np.int64).reshape(-1, 3)
    total = prod(grid)
    if count is None or count >= total:
        chosen = np.arange(total)
    else:
        corners = list(dict.fromkeys(_number(grid, place) for place in product(*((0, size - 1) for size in grid))))
        rest = np.setdiff1d(np.arange(total), corners) if total <= 1 << 22 else np.arange(1, total - 1)
        extra = np.random.default_rng(seed).choice(rest, max(count - len(corners), 0), replace=False)
        chosen = np.unique(np.concatenate([corners[: max(count, 1)], extra])).astype(np.int64)
    return np.stack([chosen % grid[0], chosen // grid[0] % grid[1], chosen // (grid[0] * grid[1])], axis=1)


def _number(grid: Shape, place: tuple[int, ...]) -> int:
    return place[0] + grid[0] * (place[1] + grid[1] * place[2])
