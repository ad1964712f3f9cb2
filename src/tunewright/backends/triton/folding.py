"""Folding: arithmetic on what a kernel's source says of its constants; whatever is not certain stays unknown."""

from __future__ import annotations

import ast
import builtins
import operator
import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any


class Unknown(Enum):
    """What stands where a value cannot be told before a launch."""

    UNKNOWN = "unknown"


UNKNOWN = Unknown.UNKNOWN

_REFUSALS = (TypeError, ValueError, ArithmeticError, AttributeError, LookupError)
_NUMBERED = re.compile(r"(\d+)")

_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda one, many: one in many, ast.NotIn: lambda one, many: one not in many,
}  # fmt: skip

_UNARY: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_, ast.Invert: operator.invert,
}  # fmt: skip

_CALLED: dict[Any, Callable[..., Any]] = {min: min, max: max, int: int, float: float, bool: bool, len: len, abs: abs}
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "cdiv": lambda a, b: -(-a // b), "multiple_of": lambda a, *_: a, "max_contiguous": lambda a, *_: a,
}  # fmt: skip


def unwrapped(value: Any) -> Any:
    """What a `tl.constexpr` holds; anything else as it is."""
    return value.value if type(value).__name__ == "constexpr" else value


def builtin(name: str) -> Any:
    """What Python itself calls by that name."""
    return getattr(builtins, name, UNKNOWN)


def _sure(function: Callable[..., Any] | None, values: Sequence[Any]) -> Any:
    if function is None or any(value is UNKNOWN for value in values):
        return UNKNOWN
    try:
        return function(*values)
    except _REFUSALS:
        return UNKNOWN


def binary(op: ast.AST, left: Any, right: Any) -> Any:
    """`left op right`."""
    return _sure(_BINARY.get(type(op)), (left, right))


def unary(op: ast.AST, value: Any) -> Any:
    """`op value`."""
    return _sure(_UNARY.get(type(op)), (value,))


def boolean(op: ast.boolop, values: Sequence[Any]) -> Any:
    """`a and b`, `a or b`: certain as soon as one part settles it."""
    settles = isinstance(op, ast.Or)
    if any(value is not UNKNOWN and bool(value) is settles for value in values):
        return settles
    return UNKNOWN if any(value is UNKNOWN for value in values) else not settles


def called(function: Any, values: Sequence[Any]) -> Any:
    """What a plain function of Python returns, of those that are safe to call."""
    try:
        return _sure(_CALLED.get(function), values)
    except TypeError:  # not hashable: none of ours
        return UNKNOWN


def arithmetic(name: str, values: Sequence[Any]) -> Any:
    """What a function of Triton on numbers returns."""
    return _sure(_ARITHMETIC.get(name), values)


def is_triton(function: Any) -> bool:
    """Whether it is part of Triton's language."""
    return str(getattr(function, "__module__", "")).startswith("triton.")


def shape(said: Any) -> tuple[int, ...] | None:
    """A shape, if it is certain."""
    sizes = said if isinstance(said, tuple | list) else (said,)
    return tuple(sizes) if all(isinstance(size, int) for size in sizes) else None


def spread(one: tuple[int, ...] | None, other: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The shape of two blocks spread over each other."""
    if one is None or other is None:
        return None
    wide = max(len(one), len(other))
    padded = [(1,) * (wide - len(side)) + side for side in (one, other)]
    return tuple(max(a, b) for a, b in zip(*padded, strict=True))


def bits_of(dtype: Any) -> int | None:
    """Bits of an element, from a dtype of Triton or torch or its name."""
    if dtype is UNKNOWN or dtype is None:
        return None
    if isinstance(known := getattr(dtype, "primitive_bitwidth", None), int):
        return known
    text = str(dtype).removeprefix("torch.")
    numbers = _NUMBERED.findall(text)
    return 8 if text == "bool" else int(numbers[0]) if numbers else None
