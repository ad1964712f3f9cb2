"""Arguments of a launch as words: `*fp16[128x64]` is an array of random numbers, `*fp32[64]=nan` one of a value."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tunewright.emulator.faults import PtxError
from tunewright.emulator.types import float_to_bfloat

_ARRAY = re.compile(r"\*(\w+)\[(\d+(?:x\d+)*)\](?:=(\S+))?")
_DTYPES: dict[str, Any] = {
    "fp16": np.float16, "fp32": np.float32, "fp64": np.float64, "i8": np.int8, "i16": np.int16, "i32": np.int32,
    "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "bf16": np.uint16,
}  # fmt: skip


def parse_words(text: str, seed: int = 0) -> list[Any]:
    """Returns the arguments in a text such as `*fp32[100],*fp32[100]=nan,100,0.5`."""
    random = np.random.default_rng(seed)
    return [_parse(word.strip(), random) for word in text.split(",") if word.strip()]


def _parse(word: str, random: np.random.Generator) -> Any:
    if found := _ARRAY.fullmatch(word):
        kind, sizes, value = found.groups()
        if kind not in _DTYPES:
            raise PtxError(f"no element type {kind!r} in {word!r}; choose one of {', '.join(_DTYPES)}")
        shape, dtype = tuple(int(size) for size in sizes.split("x")), _DTYPES[kind]
        floats = np.dtype(dtype).kind == "f" or kind == "bf16"
        numbers = random.standard_normal(shape) if floats else random.integers(0, 100, shape)
        if value is not None:
            numbers = np.full(shape, float(value) if floats else int(value))
        return float_to_bfloat(numbers.astype(np.float32)) if kind == "bf16" else numbers.astype(dtype)
    try:
        return int(word, 0)
    except ValueError:
        pass
    try:
        return float(word)
    except ValueError:
        raise PtxError(f"{word!r} is no argument; write a number or an array such as *fp16[128x64]") from None
