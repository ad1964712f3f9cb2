"""Source: what a kernel does, as a digest; without comments, positions and names of files."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from tunewright.backends.host import digest, source_of
from tunewright.backends.triton import adapter


def digest_of(fn: Any) -> str:
    """A digest of a kernel, of the heuristics around it, and of the functions and constants that it uses.

    What Triton itself defines does not count: its version is part of every key.
    """
    parts: list[str] = []
    inner = adapter.innermost(fn)
    while fn is not inner:
        if isinstance(fn, adapter.Heuristics):
            parts += [f"heuristic {name} {source_of(rule)}" for name, rule in fn.values.items()]
        fn = fn.fn
    _gather(inner, parts, set())
    return digest(*parts)


def tree_of(jitted: Any) -> ast.FunctionDef:
    """The syntax of a jitted function, without decorators and docstring."""
    parsed = jitted.parse() if hasattr(jitted, "parse") else ast.parse(textwrap.dedent(inspect.getsource(jitted.fn)))
    tree = parsed.body[0]
    assert isinstance(tree, ast.FunctionDef)
    tree.decorator_list = []
    if ast.get_docstring(tree, clean=False) is not None:
        tree.body = tree.body[1:] or [ast.Pass()]
    return tree


def scope_of(jitted: Any) -> Mapping[str, Any]:
    """The names a jitted function can see beside its own."""
    function, seen = jitted.fn, dict(jitted.fn.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            seen[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    return seen


def found(node: ast.expr, scope: Mapping[str, Any]) -> Any:
    """What a name, or a name in a module, stands for; None if that cannot be said without running anything."""
    if isinstance(node, ast.Name):
        return scope.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = found(node.value, scope)
        return getattr(owner, node.attr, None) if isinstance(owner, ModuleType) else None
    return None


def _gather(jitted: Any, parts: list[str], seen: set[int]) -> None:
    """Add what a jitted function contributes, in the order of its syntax; each once."""
    if id(jitted) in seen:
        return
    seen.add(id(jitted))
    tree = tree_of(jitted)
    parts.append(ast.dump(tree))
    for name, value in _used(tree, scope_of(jitted)):
        if adapter.is_callable_on_device(value):
            _gather(value, parts, seen)
        elif (constant := adapter.constant_of(value)) is not None:
            parts.append(f"{name} {constant}")


def _used(tree: ast.FunctionDef, scope: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names from outside that the body mentions, with what they stand for."""
    own = {arg.arg for arg in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in own:
            yield node.id, scope.get(node.id)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node), found(node, scope)
