"""Writes: which arguments a kernel stores to, read from its syntax; rather one too many than one too few."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from types import BuiltinFunctionType, ModuleType
from typing import Any

from tunewright.backends.triton import adapter
from tunewright.fronts.triton.source import found, scope_of, tree_of

STORES = ("store", "atomic", "copy")
"""Calls whose names say that they write."""

VALUES = ("load", "atomic")
"""What these return is data, which is followed no further: it is no pointer to an argument."""


def stored_by(fn: Any) -> frozenset[str]:
    """The names of the parameters through which a kernel, or a function it calls, stores."""
    return _Flow(adapter.innermost(fn), ()).stored()


class _Flow(ast.NodeVisitor):
    """From which parameters each name of a function comes, and through which of them is stored."""

    def __init__(self, jitted: Any, above: Sequence[Any]) -> None:
        self._jitted, self._above = jitted, (*above, jitted)
        self._scope = scope_of(jitted)
        self._tree = tree_of(jitted)
        given = self._tree.args
        self.params = [arg.arg for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        self._from: dict[str, set[str]] = {name: {name} for name in self.params}
        self._stored: set[str] = set()

    def stored(self) -> frozenset[str]:
        """Parameters that are stored through; the body is gone through until nothing new is learned."""
        size = -1
        while size != (size := sum(map(len, self._from.values())) + len(self._stored)):
            for statement in self._tree.body:
                self.visit(statement)
        return frozenset(self._stored)

    def _comes_from(self, node: ast.AST) -> set[str]:
        if isinstance(node, ast.Name):
            return self._from.get(node.id, set())
        if isinstance(node, ast.Call) and self._returns_data(node):
            return set()
        return set().union(*(self._comes_from(child) for child in ast.iter_child_nodes(node)))

    def _returns_data(self, node: ast.Call) -> bool:
        own = adapter.is_callable_on_device(found(node.func, self._scope))  # which may return a pointer, however named
        return not own and any(word in _called(node) for word in VALUES)

    def _bind(self, target: ast.AST, origin: set[str]) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self._from.setdefault(node.id, set()).update(origin)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._bind(target, self._comes_from(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        self._bind(node.target, self._comes_from(node.value))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if node.value is not None:
            self._bind(node.target, self._comes_from(node.value))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.generic_visit(node)
        self._bind(node.target, self._comes_from(node.value))

    def visit_For(self, node: ast.For) -> None:
        self._bind(node.target, self._comes_from(node.iter))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        name, value = _called(node), found(node.func, self._scope)
        if adapter.is_callable_on_device(value):
            self._stored |= self._through(value, node)
        elif any(word in name for word in STORES) or not self._harmless(node, value):
            self._stored |= self._everything(node)

    def _everything(self, node: ast.Call) -> set[str]:
        """Where the pointer comes from: the first argument, one given by name, or what a method belongs to."""
        given = [*node.args[:1], *(word.value for word in node.keywords if word.arg in ("pointer", "desc"))]
        if isinstance(node.func, ast.Attribute):
            given.append(node.func.value)
        if not self._harmless(node, None):
            given += [*node.args, *(word.value for word in node.keywords)]
        return set().union(*map(self._comes_from, given))

    def _harmless(self, node: ast.Call, value: Any) -> bool:
        """Whether a call is one of Triton's own, of Python's builtins, or a method, which stores only if it says so."""
        if "asm" in _called(node) or "extern" in _called(node):
            return False
        if isinstance(node.func, ast.Attribute):
            owner = found(node.func.value, self._scope)
            return not isinstance(owner, ModuleType) or owner.__name__.startswith(("triton", "math"))
        if isinstance(value, BuiltinFunctionType | type) or getattr(value, "__module__", "").startswith("triton"):
            return True
        return isinstance(node.func, ast.Name) and node.func.id in _BUILTINS

    def _through(self, callee: Any, node: ast.Call) -> set[str]:
        """What a call of another function stores through."""
        given: dict[str, ast.expr] = {}
        if callee in self._above:
            return set().union(*(self._comes_from(arg) for arg in node.args))
        inner = _Flow(callee, self._above)
        stored = inner.stored()
        for name, arg in zip(inner.params, node.args, strict=False):
            given[name] = arg
        given |= {word.arg: word.value for word in node.keywords if word.arg}
        if any(isinstance(arg, ast.Starred) for arg in node.args):
            return set().union(*map(self._comes_from, node.args)) if stored else set()
        return set().union(*(self._comes_from(given[name]) for name in stored if name in given))


_BUILTINS = frozenset({"range", "min", "max", "len", "int", "float", "abs", "print", "isinstance", "getattr", "tuple"})


def _called(node: ast.Call) -> str:
    """The last name of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def tensors_to_restore(fn: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors among the arguments that a launch may change, by name, in the order of the parameters."""
    names = stored_by(fn)
    return dict(
        found for name in fn.arg_names if name in names and name in named for found in _tensors(name, named[name])
    )


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The tensor that an argument is or describes, or those in a tuple."""
    if isinstance(value, tuple | list):
        for number, part in enumerate(value):
            yield from _tensors(f"{name}.{number}", part)
    elif (tensor := adapter.tensor_of(value)) is not None:
        yield name, tensor
