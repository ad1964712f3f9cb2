"""Constant folding over a kernel's source; whatever is not certain stays unknown."""

from __future__ import annotations

import ast
import builtins
import operator
import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any


class Unknown(Enum):
    """Type of the marker for values that are not known before a launch."""

    UNKNOWN = "unknown"


UNKNOWN = Unknown.UNKNOWN

_EXPECTED_ERRORS = (TypeError, ValueError, ArithmeticError, AttributeError, LookupError)
_NUMBERED = re.compile(r"(\d+)")

_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda item, items: item in items, ast.NotIn: lambda item, items: item not in items,
}  # fmt: skip

_UNARY: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_, ast.Invert: operator.invert,
}  # fmt: skip

_SAFE_CALLS: dict[Any, Callable[..., Any]] = {
    min: min,
    max: max,
    int: int,
    float: float,
    bool: bool,
    len: len,
    abs: abs,
}
_TRITON_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cdiv": lambda a, b: -(-a // b), "multiple_of": lambda a, *_: a, "max_contiguous": lambda a, *_: a,
}  # fmt: skip


def unwrap_constexpr(value: Any) -> Any:
    """Returns the value in a `tl.constexpr`; anything else unchanged."""
    return value.value if type(value).__name__ == "constexpr" else value


def builtin(name: str) -> Any:
    """Returns Python's builtin of that name."""
    return getattr(builtins, name, UNKNOWN)


def _fold(function: Callable[..., Any] | None, values: Sequence[Any]) -> Any:
    if function is None or any(value is UNKNOWN for value in values):
        return UNKNOWN
    try:
        return function(*values)
    except _EXPECTED_ERRORS:
        return UNKNOWN


def binary(op: ast.AST, left: Any, right: Any) -> Any:
    """Folds `left op right`."""
    return _fold(_BINARY.get(type(op)), (left, right))


def unary(op: ast.AST, value: Any) -> Any:
    """Folds `op value`."""
    return _fold(_UNARY.get(type(op)), (value,))


def boolean(op: ast.boolop, values: Sequence[Any]) -> Any:
    """Folds `a and b`, `a or b`; one operand can decide it."""
    decisive = isinstance(op, ast.Or)
    if any(value is not UNKNOWN and bool(value) is decisive for value in values):
        return decisive
    return UNKNOWN if any(value is UNKNOWN for value in values) else not decisive


def call(function: Any, values: Sequence[Any]) -> Any:
    """Folds a call of a Python function that is safe to call."""
    try:
        return _fold(_SAFE_CALLS.get(function), values)
    except TypeError:  # not hashable
        return UNKNOWN


def arithmetic(name: str, values: Sequence[Any]) -> Any:
    """Folds a call of a Triton function on numbers."""
    return _fold(_TRITON_FUNCTIONS.get(name), values)


def is_triton(function: Any) -> bool:
    """Whether a function is part of Triton's language."""
    return str(getattr(function, "__module__", "")).startswith("triton.")


def shape(value: Any) -> tuple[int, ...] | None:
    """Returns a value as a shape; None if it is not certain."""
    sizes = value if isinstance(value, tuple | list) else (value,)
    return tuple(sizes) if all(isinstance(size, int) for size in sizes) else None


def broadcast(left: tuple[int, ...] | None, right: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Returns the shape to which two blocks are broadcast."""
    if left is None or right is None:
        return None
    rank = max(len(left), len(right))
    padded = [(1,) * (rank - len(side)) + side for side in (left, right)]
    return tuple(max(a, b) for a, b in zip(*padded, strict=True))


def bits_of(dtype: Any) -> int | None:
    """Returns the bits of an element of a Triton or torch dtype, or of its name."""
    if dtype is UNKNOWN or dtype is None:
        return None
    if isinstance(width := getattr(dtype, "primitive_bitwidth", None), int):
        return width
    text = str(dtype).removeprefix("torch.")
    digits = _NUMBERED.findall(text)
    return 8 if text == "bool" else int(digits[0]) if digits else None
