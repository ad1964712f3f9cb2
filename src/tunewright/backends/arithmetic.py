"""Arithmetic: rules from text, such as tuning files hold; parsed as arithmetic, never run as code."""

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


def rule(text: str, reason: str | None = None, texts: Collection[str] = ()) -> Rule:
    """A rule from an arithmetic expression over knobs, of which `texts` have texts; nothing else is accepted."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
        for node in ast.walk(tree):
            if not isinstance(node, _ALLOWED):
                raise SpaceError(f"a rule in text is plain arithmetic; {type(node).__name__} in {text!r} is not")
            if isinstance(node, ast.BinOp) and not all(_numeric(side, texts) for side in (node.left, node.right)):
                raise SpaceError(f"a rule in text is plain arithmetic, so it computes with numbers alone: {text!r}")
        head = f"lambda {', '.join(sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}))}: "
        # The expression is arithmetic on its own parameters and sees no builtins: data, not code.
        scope = {"__builtins__": {}, "all_": _all, "any_": _any}
        holds = eval(head + ast.unparse(tree), scope)  # noqa: S307
        wide = eval(head + ast.unparse(ast.fix_missing_locations(_Wide().visit(tree))), scope)  # noqa: S307
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SpaceError(f"cannot read the rule {text[:200]!r}: {error}") from error
    return Rule(reason or text.strip(), holds, wide)


def _numeric(node: ast.expr, texts: Collection[str]) -> bool:
    """Never a text or a list: repeating one of those may take any amount of memory."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float)
        case ast.Name(id=name):
            return name not in texts
        case ast.IfExp(body=one, orelse=other):
            return _numeric(one, texts) and _numeric(other, texts)
        case ast.BoolOp(values=parts):
            return all(_numeric(part, texts) for part in parts)
    return not isinstance(node, ast.Tuple | ast.List)


def _all(*parts: Any) -> Any:
    """`and` that works on arrays."""
    return np.logical_and.reduce(np.broadcast_arrays(*parts))


def _any(*parts: Any) -> Any:
    """`or` that works on arrays."""
    return np.logical_or.reduce(np.broadcast_arrays(*parts))


class _Wide(ast.NodeTransformer):
    """Turns `a and b`, `a or b` and `not a` into what works on columns too."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "all_" if isinstance(node.op, ast.And) else "any_"
        return ast.Call(ast.Name(name, ast.Load()), node.values, [])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not):
            return ast.Compare(node.operand, [ast.Eq()], [ast.Constant(False)])
        return node
