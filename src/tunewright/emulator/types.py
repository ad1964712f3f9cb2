"""PTX types as numpy types."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
SIGNED: dict[int, Any] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
FLOAT: dict[int, Any] = {2: np.float16, 4: np.float32, 8: np.float64}

_SIMPLE = re.compile(r"([busf])(8|16|32|64)")
_PACKED = {"f16x2": 4, "bf16x2": 4, "bf16": 2, "tf32": 4, "u16x2": 4, "s16x2": 4, "e4m3x2": 2, "e5m2x2": 2}


def is_type(word: str) -> bool:
    """Returns whether a modifier is a type."""
    return word == "pred" or word in _PACKED or bool(_SIMPLE.fullmatch(word))


def width(name: str) -> int:
    """Returns the bytes of a type."""
    if name == "pred":
        return 1
    return _PACKED.get(name) or int(name[1:]) // 8


def dtype(name: str) -> Any:
    """Returns the numpy type of a type; packed types and bf16 are raw bits."""
    if name == "pred":
        return np.bool_
    if name in _PACKED:
        return UNSIGNED[_PACKED[name]]
    table = {"s": SIGNED, "f": FLOAT}.get(name[0], UNSIGNED)
    return table[width(name)]


def types_of(modifiers: tuple[str, ...]) -> list[str]:
    """Returns the types among the modifiers of an instruction, in order."""
    return [word for word in modifiers if is_type(word)]


def is_float(name: str) -> bool:
    """Returns whether a type is a float that numpy has."""
    return name[0] == "f" and "x" not in name


def is_signed(name: str) -> bool:
    """Returns whether a type is a signed integer."""
    return name[0] == "s"


def bfloat_to_float(bits: Array) -> Array:
    """Returns 16-bit patterns of bfloat16 as float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def float_to_bfloat(values: Array) -> Array:
    """Rounds float32 to the nearest bfloat16, ties to even; returns bits."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FFF), rounded).astype(np.uint16)
