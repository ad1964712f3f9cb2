"""Parses the arguments of a launch without a GPU from words such as `*fp16` and `i32:16`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from tunewright.errors import SignatureError

_ELEMENT_TYPES = {
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64",
    "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2", "fp8e4b8": "float8_e4m3fnuz", "fp8e5b16": "float8_e5m2fnuz",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "i1": "bool", "u1": "bool",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
}  # fmt: skip

_EXAMPLE_INTEGERS = {"i32": 1 << 10, "i64": 1 << 40, "u64": 1 << 63}
"""A number that Triton gives that type."""


class TensorStub:
    """Has what Triton reads of a tensor before a launch: its dtype and its address."""

    def __init__(self, dtype: str, address: int = 0) -> None:
        self.dtype = f"torch.{dtype}"
        self._address = address

    def data_ptr(self) -> int:
        """Returns an address with the declared alignment."""
        return self._address

    def ptr_range(self) -> int:
        """Returns a size below the limits that Triton specializes on, as most tensors have."""
        return 0


def parse_arguments(text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Parses positional and keyword arguments: `*fp16,*fp16:8,i32:16,i32,1,BLOCK=64`.

    `*fp16` is a tensor at an address divisible by 16, as allocators return it; `*fp16:8` is one that is not. `i32` is
    any number, `i32:16` one divisible by 16; a literal stands for itself.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for part in text.replace(" ", "").split(","):
        name, equals, word = part.rpartition("=")
        if equals:
            kwargs[name] = parse_value(word)
        elif kwargs:
            raise SignatureError(f"the positional argument {part!r} follows a keyword argument; move it before")
        else:
            args.append(parse_value(word))
    return tuple(args), kwargs


def parse_value(word: str) -> Any:
    """Returns one argument, from a word."""
    kind, colon, hint = word.partition(":")
    if colon and not hint.isdecimal():
        raise SignatureError(f"{word!r} has no divisor after the colon; write a number, such as {kind}:16")
    aligned = int(hint) % 16 == 0 if colon else kind.startswith("*")
    if kind.startswith("*"):
        if kind[1:] not in _ELEMENT_TYPES:
            raise SignatureError(f"{word!r} points to an unknown type; known: {', '.join(_ELEMENT_TYPES)}")
        return TensorStub(_ELEMENT_TYPES[kind[1:]], 0 if aligned else 8)
    if kind in _EXAMPLE_INTEGERS:
        return 1 if hint == "1" else _EXAMPLE_INTEGERS[kind] + (0 if aligned else 1)
    if kind in ("fp32", "u1", "i1"):
        return 0.5 if kind == "fp32" else True
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        types = ", ".join([*_EXAMPLE_INTEGERS, "fp32", "u1"])
        raise SignatureError(
            f"{word!r} is neither a value nor a type; types: pointers such as *fp16, {types}"
        ) from None


def resolve_declared(args: Sequence[Any]) -> tuple[Any, ...]:
    """Replaces the words among declared arguments by the values they describe."""
    return tuple(parse_value(arg) if isinstance(arg, str) else arg for arg in args)
