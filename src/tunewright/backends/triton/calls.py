"""Calls: the arguments of a launch without a GPU, from real values or from words such as `*fp16` and `i32:16`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from tunewright.errors import SignatureError

_POINTED = {
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64",
    "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2", "fp8e4b8": "float8_e4m3fnuz", "fp8e5b16": "float8_e5m2fnuz",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "i1": "bool", "u1": "bool",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
}  # fmt: skip

_WHOLE = {"i32": 1 << 10, "i64": 1 << 40, "u64": 1 << 63}
"""Numbers that Triton takes for that type."""


class StandIn:
    """What Triton looks at in a tensor before a launch: its element type and its address."""

    def __init__(self, dtype: str, address: int = 0) -> None:
        self.dtype = f"torch.{dtype}"
        self._address = address

    def data_ptr(self) -> int:
        """Where it would be."""
        return self._address

    def ptr_range(self) -> int:
        """How far it would reach; small, as most tensors are."""
        return 0


def arguments(text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, from words: `*fp16,*fp16:8,i32:16,i32,1,BLOCK=64`.

    `*fp16` is a tensor as allocators place it, at an address divisible by 16; `*fp16:8` one that is not. `i32` is
    any number, `i32:16` one divisible by 16; a number is itself, as in a call, and so is what has a name.
    """
    given: list[Any] = []
    named: dict[str, Any] = {}
    for part in text.replace(" ", "").split(","):
        name, equals, word = part.rpartition("=")
        if equals:
            named[name] = value(word)
        elif named:
            raise SignatureError(f"{part!r} has no name but follows one that has; write those with names last")
        else:
            given.append(value(word))
    return tuple(given), named


def value(word: str) -> Any:
    """One argument, from a word."""
    kind, colon, hint = word.partition(":")
    if colon and not hint.isdecimal():
        raise SignatureError(f"{word!r}: after the colon stands a number by which it is divisible, such as {kind}:16")
    aligned = int(hint) % 16 == 0 if colon else kind.startswith("*")
    if kind.startswith("*"):
        if kind[1:] not in _POINTED:
            raise SignatureError(f"{word!r} is a pointer to no type of Triton; known: {', '.join(_POINTED)}")
        return StandIn(_POINTED[kind[1:]], 0 if aligned else 8)
    if kind in _WHOLE:
        return 1 if hint == "1" else _WHOLE[kind] + (0 if aligned else 1)
    if kind in ("fp32", "u1", "i1"):
        return 0.5 if kind == "fp32" else True
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        known = ", ".join([*_WHOLE, "fp32", "u1"])
        raise SignatureError(f"{word!r} is neither a value nor a type; types: *fp16 and the like, {known}") from None


def spoken(args: Sequence[Any]) -> tuple[Any, ...]:
    """A declared call, in which words stand for values they describe."""
    return tuple(value(arg) if isinstance(arg, str) else arg for arg in args)
