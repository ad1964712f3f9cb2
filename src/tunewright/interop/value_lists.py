"""Parses lists of knob values from expressions in T1 files, without running them as code."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from tunewright.errors import WireError
from tunewright.interop.untrusted import MAX_CHARS, MAX_VALUES, quote

MAX_NUMBER = 1 << 62
MAX_STEPS = 1_000_000

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
}


def parse_values(text: str, where: str) -> list[Any]:
    """Returns the list of a text such as `[1, 2] + list(range(32, 129, 32))` or `[2**i for i in range(5)]`."""
    if len(text) > MAX_CHARS * 50:
        raise WireError(f"{where} is longer than {MAX_CHARS * 50:,} characters")
    try:
        value = _evaluate(ast.parse(text.strip(), mode="eval").body, {})
    except (SyntaxError, ValueError, ArithmeticError, TypeError, RecursionError, MemoryError) as error:
        raise WireError(f"{where}: cannot read {quote(text)}: {error}; write the values out: [1, 2, 4]") from error
    if not isinstance(value, list) or not value:
        raise WireError(f"{where}: {quote(text)} is not a list of values")
    return value


def _evaluate(node: ast.expr, bound: dict[str, Any]) -> Any:
    """Returns the value of a node; every supported kind of node is a case here."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return _check_size(value)
        case ast.Name(id=name) if name in bound:
            return bound[name]
        case ast.UnaryOp(op=ast.USub(), operand=part):
            return -_evaluate(part, bound)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_evaluate(part, bound) for part in parts]
        case ast.BinOp(left=left, op=kind, right=right):
            return _apply(kind, _evaluate(left, bound), _evaluate(right, bound))
        case ast.Call(func=ast.Name(id="list"), args=[part], keywords=[]):
            return _evaluate(part, bound)
        case ast.Call(func=ast.Name(id="range"), args=parts, keywords=[]):
            return _check_length(range(*(_evaluate(part, bound) for part in parts)))
        case ast.ListComp(elt=part, generators=[ast.comprehension(ast.Name(id=name), over, [], 0)]):
            each_of = _check_length(_evaluate(over, bound))
            if len(each_of) * sum(1 for _ in ast.walk(part)) > MAX_STEPS:
                raise ValueError(f"it takes more than {MAX_STEPS:,} steps")
            return [_check_scalar(_evaluate(part, bound | {name: each})) for each in each_of]
    raise ValueError(f"{type(node).__name__} is not supported")


def _apply(kind: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(left, list) and isinstance(right, list) and isinstance(kind, ast.Add):
        return _check_length(left + right)
    if isinstance(left, bool | int | float) and isinstance(right, bool | int | float):
        if isinstance(kind, ast.Pow) and abs(left) <= 1024 and 0 <= right <= 62:
            value = left**right
        elif type(kind) in _OPERATORS:
            value = _OPERATORS[type(kind)](left, right)
        else:
            raise ValueError(f"{type(kind).__name__} of {left} and {right} is not supported")
        return _check_size(value)
    raise ValueError(f"{type(kind).__name__} of {quote(left)} and {quote(right)} is not supported")


def _check_size(value: Any) -> Any:
    if isinstance(value, int | float) and abs(value) > MAX_NUMBER:
        raise ValueError(f"a number beyond {MAX_NUMBER:.2g} is too large")
    return value


def _check_scalar(value: Any) -> Any:
    if isinstance(value, list):
        raise ValueError("a list of lists is not supported")
    return value


def _check_length(value: Any) -> list[Any]:
    if not isinstance(value, list | range) or len(value) > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES:,} values, or no list")
    return list(value)
