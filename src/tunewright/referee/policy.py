"""Policy: what the source of a candidate may import and call, found without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tunewright.referee.task import Task

EVASIONS = frozenset({"eval", "exec", "compile", "__import__", "globals", "__builtins__"})
"""Names that reach a module by text; refused where imports or calls are restricted."""

CALL_EVASIONS = frozenset({"getattr", "vars", "attrgetter", "methodcaller", ".__dict__", ".__getattribute__"})
"""Names and attributes that reach a function by text; refused where calls are restricted."""


def find_breach(source: str, task: Task) -> str | None:
    """Returns why a Python source breaks the policy of a task; None if it does not."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        return f"its source cannot be parsed: {error}"
    if task.imports is not None:
        allowed = set(task.imports)
        for module, line in _imported(tree):
            if module.partition(".")[0] not in allowed:
                return f"line {line}: it imports {module}; this task allows {', '.join(sorted(allowed))}"
    forbidden = set(task.forbidden)
    evasions = EVASIONS if forbidden or task.imports is not None else frozenset()
    evasions |= CALL_EVASIONS if forbidden else frozenset()
    for name, line in _used(tree):
        if name.removeprefix(".") in forbidden:
            return f"line {line}: it uses {name.removeprefix('.')}, which this task forbids"
        if name in evasions:
            return f"line {line}: it uses {name.removeprefix('.')}, which hides what it imports or calls"
    return None


def imports_module(source: str, name: str) -> bool:
    """Whether a Python source imports a module, anywhere in it."""
    try:
        return any(module.partition(".")[0] == name for module, _ in _imported(ast.parse(source)))
    except (SyntaxError, ValueError):
        return False


def _imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name, node.lineno) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield ("." if node.level else node.module or "", node.lineno)


def _used(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yields names, attributes with a dot before, and imported names; a product of matrices is "@"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute):
            yield f".{node.attr}", node.lineno
        elif isinstance(node, ast.ImportFrom):
            yield from ((each.name, node.lineno) for each in node.names)
        elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
            yield "@", node.lineno
