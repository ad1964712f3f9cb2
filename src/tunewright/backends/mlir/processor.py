"""Processor: what of this machine's processor sizes are fitted to."""

from __future__ import annotations

from tunewright.backends.host import cpu

FLOAT = 4
"""Bytes of a float32."""


def lanes() -> int:
    """Floats in a vector register of this processor."""
    features = cpu().features
    return 16 if "avx512f" in features else 8 if "avx2" in features or "avx" in features else 4


def registers() -> int:
    """Vector registers of this processor."""
    return 32 if "avx512f" in cpu().features or cpu().architecture == "aarch64" else 16
