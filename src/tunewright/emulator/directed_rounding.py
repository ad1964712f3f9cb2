"""Single-precision arithmetic that rounds toward zero or to one side, as parts of CUDA's math functions do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tunewright.emulator.faults import UnsupportedInstruction
from tunewright.emulator.ptx_text import Instruction
from tunewright.emulator.types import Array

MODES = {"rm": -np.inf, "rp": np.inf, "rz": 0.0}
"""Toward which number each mode rounds."""


def rounded(item: Instruction, kind: str) -> Callable[..., Array]:
    """Returns `add`, `sub`, `mul` or `fma` of float32 with the rounding that the instruction asks for."""
    mode = next(word for word in item.modifiers if word in MODES)
    if kind != "f32" or item.opcode not in ("add", "sub", "mul", "fma"):
        raise UnsupportedInstruction(item.place, "its rounding")

    def compute(*sources: Array) -> Array:
        wide = [source.astype(np.float64) for source in sources]
        if item.opcode == "mul":
            return _round(wide[0] * wide[1], np.zeros(1), mode)
        if item.opcode == "fma":
            return _round(*_sum(wide[0] * wide[1], wide[2]), mode)
        return _round(*_sum(wide[0], -wide[1] if item.opcode == "sub" else wide[1]), mode)

    return compute


def _sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Returns a sum and what its rounding lost."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _round(total: Array, lost: Array, mode: str) -> Array:
    """Returns float32 on the side of the exact value that the mode asks for."""
    near = total.astype(np.float32)
    above = (near > total) | ((near == total) & (lost < 0))
    below = (near < total) | ((near == total) & (lost > 0))
    wrong = {"rm": above, "rp": below, "rz": np.where(total > 0, above, below)}[mode]
    return np.where(wrong & np.isfinite(total), np.nextafter(near, np.float32(MODES[mode])), near)
