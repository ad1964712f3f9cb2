"""Digests of kernel sources, without comments, positions and file names."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from tunewright.backends.host import digest, function_digest
from tunewright.triton import adapter


def kernel_digest(fn: Any) -> str:
    """Returns a digest of a kernel, its heuristics, and the functions and constants that it uses.

    What Triton defines does not count: its version is part of every key.
    """
    parts: list[str] = []
    inner = adapter.innermost(fn)
    while fn is not inner:
        if isinstance(fn, adapter.Heuristics):
            parts += [f"heuristic {name} {function_digest(rule)}" for name, rule in fn.values.items()]
        fn = fn.fn
    _collect(inner, parts, set())
    return digest(*parts)


def finds_addresses(fn: Any) -> bool:
    """Whether a kernel may take numbers for addresses, which mean nothing in another process."""
    parts: list[str] = []
    _collect(adapter.innermost(fn), parts, set())
    return any(word in part for part in parts for word in ("pointer_type", "pointer<", "inline_asm", "extern"))


def parse_function(jitted: Any) -> ast.FunctionDef:
    """Returns the syntax tree of a jitted function, without decorators and docstring."""
    parsed = jitted.parse() if hasattr(jitted, "parse") else ast.parse(textwrap.dedent(inspect.getsource(jitted.fn)))
    tree = parsed.body[0]
    assert isinstance(tree, ast.FunctionDef)
    tree.decorator_list = []
    if ast.get_docstring(tree, clean=False) is not None:
        tree.body = tree.body[1:] or [ast.Pass()]
    return tree


def visible_names(jitted: Any) -> Mapping[str, Any]:
    """Returns the globals and closure variables of a jitted function."""
    function, names = jitted.fn, dict(jitted.fn.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    return names


def resolve_name(node: ast.expr, scope: Mapping[str, Any]) -> Any:
    """Returns the value of a name or of an attribute of a module; None if it is not known without running code."""
    if isinstance(node, ast.Name):
        return scope.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = resolve_name(node.value, scope)
        return getattr(owner, node.attr, None) if isinstance(owner, ModuleType) else None
    return None


def _collect(jitted: Any, parts: list[str], seen: set[int]) -> None:
    """Adds the parts of a jitted function and of what it uses, in the order of its syntax; each once."""
    if id(jitted) in seen:
        return
    seen.add(id(jitted))
    tree = parse_function(jitted)
    parts.append(ast.dump(tree))
    for name, value in _outer_names(tree, visible_names(jitted)):
        if adapter.is_callable_on_device(value):
            _collect(value, parts, seen)
        elif (constant := adapter.constant_of(value)) is not None:
            parts.append(f"{name} {constant}")


def _outer_names(tree: ast.FunctionDef, scope: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the outer names that the body mentions, with their values."""
    own = {arg.arg for arg in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in own:
            yield node.id, scope.get(node.id)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node), resolve_name(node, scope)
