"""Values: lists of a knob's values from text, such as input files hold; computed from its parts, never run as code."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from tunewright.errors import WireError
from tunewright.interop.edge import LONGEST, MOST_VALUES, shown

LARGEST = 1 << 62
MOST_STEPS = 1_000_000

_SUMS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
}


def listed(text: str, where: str) -> list[Any]:
    """The list that a text such as `[1, 2] + list(range(32, 129, 32))` or `[2**i for i in range(5)]` stands for."""
    if len(text) > LONGEST * 50:
        raise WireError(f"{where} is longer than {LONGEST * 50:,} characters")
    try:
        found = _read(ast.parse(text.strip(), mode="eval").body, {})
    except (SyntaxError, ValueError, ArithmeticError, TypeError, RecursionError, MemoryError) as error:
        raise WireError(f"{where}: cannot read {shown(text)}: {error}; write the values out: [1, 2, 4]") from error
    if not isinstance(found, list) or not found:
        raise WireError(f"{where}: {shown(text)} is not a list of values")
    return found


def _read(node: ast.expr, bound: dict[str, Any]) -> Any:
    """What a part of the text is worth; every kind of part that is understood is a case here."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as found):
            return _fitting(found)
        case ast.Name(id=name) if name in bound:
            return bound[name]
        case ast.UnaryOp(op=ast.USub(), operand=part):
            return -_read(part, bound)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_read(part, bound) for part in parts]
        case ast.BinOp(left=left, op=kind, right=right):
            return _sum(kind, _read(left, bound), _read(right, bound))
        case ast.Call(func=ast.Name(id="list"), args=[part], keywords=[]):
            return _read(part, bound)
        case ast.Call(func=ast.Name(id="range"), args=parts, keywords=[]):
            return _bounded(range(*(_read(part, bound) for part in parts)))
        case ast.ListComp(elt=part, generators=[ast.comprehension(ast.Name(id=name), over, [], 0)]):
            each_of = _bounded(_read(over, bound))
            if len(each_of) * sum(1 for _ in ast.walk(part)) > MOST_STEPS:
                raise ValueError(f"it takes more than {MOST_STEPS:,} steps")
            return [_single(_read(part, bound | {name: each})) for each in each_of]
    raise ValueError(f"{type(node).__name__} is not understood")


def _sum(kind: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(left, list) and isinstance(right, list) and isinstance(kind, ast.Add):
        return _bounded(left + right)
    if isinstance(left, bool | int | float) and isinstance(right, bool | int | float):
        if isinstance(kind, ast.Pow) and abs(left) <= 1024 and 0 <= right <= 62:
            found = left**right
        elif type(kind) in _SUMS:
            found = _SUMS[type(kind)](left, right)
        else:
            raise ValueError(f"{type(kind).__name__} of {left} and {right} is not understood")
        return _fitting(found)
    raise ValueError(f"{type(kind).__name__} of {shown(left)} and {shown(right)} is not understood")


def _fitting(found: Any) -> Any:
    if isinstance(found, int | float) and abs(found) > LARGEST:
        raise ValueError(f"a number beyond {LARGEST:.2g} is too large")
    return found


def _single(found: Any) -> Any:
    if isinstance(found, list):
        raise ValueError("a list of lists is not understood")
    return found


def _bounded(found: Any) -> list[Any]:
    if not isinstance(found, list | range) or len(found) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values, or no list")
    return list(found)
