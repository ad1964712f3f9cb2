"""Vector and tile properties of the local processor."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

from tunewright.backends.host import cpu

FLOAT_BYTES = 4
"""Bytes of a float32."""

ELEMENT_BYTES = {"f32": FLOAT_BYTES, "bf16": 2, "i8": 1}

TILE_REGISTERS = 8

USES_TILES = "tunewright_uses_tiles"
"""The function that a library has if its code uses tile registers."""

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
"""The system call, and its arguments, by which a process asks Linux for tile registers."""

_TILES = {"bf16": "amx_bf16", "i8": "amx_int8"}
_DOTS = {"bf16": "avx512_bf16", "i8": "avx512_vnni"}


def vector_lanes() -> int:
    """Returns the float32 lanes of a vector register."""
    features = cpu().features
    return 16 if "avx512f" in features else 8 if "avx2" in features or "avx" in features else 4


def vector_registers() -> int:
    """Returns the number of vector registers."""
    return 32 if "avx512f" in cpu().features or cpu().architecture == "aarch64" else 16


def has_dot_tiles(element: str) -> bool:
    """Returns whether products of an element can be computed in tiles (AMX), and the system lets this process do so."""
    return {"amx_tile", _TILES.get(element, "none")} <= set(cpu().features) and allow_tiles()


def has_dot_vectors(element: str) -> bool:
    """Returns whether the processor has a dot-product instruction on vectors of an element."""
    return {"avx512f", _DOTS.get(element, "none")} <= set(cpu().features)


@cache
def allow_tiles() -> bool:
    """Ask the system for tile registers, for all threads of this process. Returns whether it has them."""
    if sys.platform != "linux" or cpu().architecture != "x86_64":
        return False
    refused: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return refused == 0
