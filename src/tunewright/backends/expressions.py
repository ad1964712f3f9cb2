"""Parses rules from text, such as the constraints of tuning files; only arithmetic is accepted, never code."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Any

import numpy as np

from tunewright.errors import SpaceError
from tunewright.spaces.rule import Rule

_ALLOWED = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd, ast.BinOp,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Compare, ast.Eq, ast.NotEq,
    ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Name, ast.Load, ast.Constant, ast.Tuple,
    ast.List, ast.IfExp,
)  # fmt: skip


def parse_rule(text: str, reason: str | None = None, text_knobs: Collection[str] = ()) -> Rule:
    """Returns the rule of an arithmetic expression over knobs; `text_knobs` are those whose values are text."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
        for node in ast.walk(tree):
            if not isinstance(node, _ALLOWED):
                raise SpaceError(f"a rule in text must be plain arithmetic; {type(node).__name__} in {text!r} is not")
            if isinstance(node, ast.BinOp) and not all(
                _is_numeric(side, text_knobs) for side in (node.left, node.right)
            ):
                raise SpaceError(f"a rule in text must be plain arithmetic on numbers alone: {text!r}")
        signature = f"lambda {', '.join(sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}))}: "
        # The expression is arithmetic on its own parameters and sees no builtins: data, not code.
        scope = {"__builtins__": {}, "all_": _all, "any_": _any}
        holds = eval(signature + ast.unparse(tree), scope)  # noqa: S307
        vectorized = eval(signature + ast.unparse(ast.fix_missing_locations(_Vectorize().visit(tree))), scope)  # noqa: S307
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SpaceError(f"cannot read the rule {text[:200]!r}: {error}") from error
    return Rule(reason or text.strip(), holds, vectorized)


def _is_numeric(node: ast.expr, text_knobs: Collection[str]) -> bool:
    """Whether an operand is a number: repeating a text or a list could take any amount of memory."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float)
        case ast.Name(id=name):
            return name not in text_knobs
        case ast.IfExp(body=body, orelse=orelse):
            return _is_numeric(body, text_knobs) and _is_numeric(orelse, text_knobs)
        case ast.BoolOp(values=operands):
            return all(_is_numeric(operand, text_knobs) for operand in operands)
    return not isinstance(node, ast.Tuple | ast.List)


def _all(*parts: Any) -> Any:
    """Returns `and` of arrays."""
    return np.logical_and.reduce(np.broadcast_arrays(*parts))


def _any(*parts: Any) -> Any:
    """Returns `or` of arrays."""
    return np.logical_or.reduce(np.broadcast_arrays(*parts))


class _Vectorize(ast.NodeTransformer):
    """Replaces `a and b`, `a or b` and `not a` by calls that also work on arrays."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "all_" if isinstance(node.op, ast.And) else "any_"
        return ast.Call(ast.Name(name, ast.Load()), node.values, [])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not):
            return ast.Compare(node.operand, [ast.Eq()], [ast.Constant(False)])
        return node
