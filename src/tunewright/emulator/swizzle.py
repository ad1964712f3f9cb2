"""How tensor copies and matrix descriptors permute shared memory: 16-byte pieces of rows of 32, 64 or 128 bytes."""

from __future__ import annotations

import numpy as np

from tunewright.emulator.types import Array


def swizzle(address: Array, width: int) -> Array:
    """Returns where the bytes of an address are, for rows of `width` bytes (16: as they are)."""
    bits = {16: 0, 32: 1, 64: 3, 128: 7}[width]
    return np.asarray(address ^ (((address >> 7) & bits) << 4))
