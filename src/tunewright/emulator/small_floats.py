"""Floats of 8 bits: e4m3 and e5m2, to and from float32."""

from __future__ import annotations

import numpy as np

from tunewright.emulator.types import Array


def _decode_all(exponent_bits: int) -> Array:
    """Returns the value of each of the 256 patterns."""
    mantissa_bits = 7 - exponent_bits
    bias = (1 << (exponent_bits - 1)) - 1
    code = np.arange(256)
    exponent, mantissa = code >> mantissa_bits & ((1 << exponent_bits) - 1), code & ((1 << mantissa_bits) - 1)
    fraction = mantissa / (1 << mantissa_bits)
    value = np.where(
        exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent.astype(float) - bias)
    )
    if exponent_bits == 4:  # no infinities; one pattern is not-a-number
        value[(code & 0x7F) == 0x7F] = np.nan
    else:
        top = exponent == 31
        value[top] = np.where(mantissa[top] == 0, np.inf, np.nan)
    return np.asarray(np.where(code & 0x80, -value, value), np.float32)


_TABLES = {"e4m3": _decode_all(4), "e5m2": _decode_all(5)}
_FINITE = {kind: np.sort(table[:128][np.isfinite(table[:128])]).astype(np.float64) for kind, table in _TABLES.items()}


def decode(kind: str, bits: Array) -> Array:
    """Returns 8-bit patterns as float32."""
    return np.asarray(_TABLES[kind][bits])


def encode(kind: str, values: Array) -> Array:
    """Rounds to the nearest, ties to even; values that are too large become the largest finite (`.satfinite`)."""
    finite = _FINITE[kind]
    size = np.abs(values.astype(np.float64))
    above = np.clip(np.searchsorted(finite, size), 1, len(finite) - 1)
    low, high = finite[above - 1], finite[above]
    up = (size - low > high - size) | ((size - low == high - size) & (above % 2 == 0))
    code = np.where(size >= finite[-1], len(finite) - 1, np.where(size == high, above, above - 1 + up))
    code = np.where(np.isnan(values), 0x7F, code)
    return (code | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)
