"""Vector properties of the local processor."""

from __future__ import annotations

from tunewright.backends.host import cpu

FLOAT_BYTES = 4
"""Bytes of a float32."""


def vector_lanes() -> int:
    """Returns the float32 lanes of a vector register."""
    features = cpu().features
    return 16 if "avx512f" in features else 8 if "avx2" in features or "avx" in features else 4


def vector_registers() -> int:
    """Returns the number of vector registers."""
    return 32 if "avx512f" in cpu().features or cpu().architecture == "aarch64" else 16
