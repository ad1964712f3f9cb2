"""Finds the arguments that a kernel writes to and reads from its syntax; if in doubt, an argument counts as both."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from types import BuiltinFunctionType, ModuleType
from typing import Any, NamedTuple

from tunewright.triton import adapter
from tunewright.triton.source import parse_function, resolve_name, visible_names

WRITING_CALLS = ("store", "atomic", "copy")
"""Parts of the names of calls that write."""

DATA_CALLS = ("load", "atomic")
"""Parts of the names of calls that return data, which cannot be a pointer to an argument."""


class PointerUse(NamedTuple):
    """The parameters through which a kernel, or a function it calls, stores, and those through which it may read.

    `stores` has the parameters that the address of each store derives from: none, if it is loaded from memory.
    """

    mutated: frozenset[str]
    read: frozenset[str]
    stores: frozenset[frozenset[str]] = frozenset()


def pointer_use(fn: Any) -> PointerUse:
    """Returns what a kernel does with the memory behind its parameters."""
    return _PointerFlow(adapter.innermost(fn), ()).use()


def mutated_parameters(fn: Any) -> frozenset[str]:
    """Returns the parameters through which a kernel, or a function it calls, stores."""
    return pointer_use(fn).mutated


class _PointerFlow(ast.NodeVisitor):
    """Tracks from which parameters each name of a function derives, and which of them are stored or read through."""

    def __init__(self, jitted: Any, callers: Sequence[Any]) -> None:
        self._jitted, self._callers = jitted, (*callers, jitted)
        self._scope = visible_names(jitted)
        self._tree = parse_function(jitted)
        arguments = self._tree.args
        self.params = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        self._origins: dict[str, set[str]] = {name: {name} for name in self.params}
        self._mutated: set[str] = set()
        self._read: set[str] = set()
        self._stores: set[frozenset[str]] = set()

    def use(self) -> PointerUse:
        """Returns the parameters that are stored or read through; visits the body until nothing changes."""
        size = -1
        while size != (size := sum(map(len, (*self._origins.values(), self._mutated, self._read)))):
            self._stores.clear()
            for statement in self._tree.body:
                self.visit(statement)
        return PointerUse(frozenset(self._mutated), frozenset(self._read), frozenset(self._stores))

    def _comes_from(self, node: ast.AST) -> set[str]:
        if isinstance(node, ast.Name):
            return self._origins.get(node.id, set())
        if isinstance(node, ast.Call) and self._returns_data(node):
            return set()
        return set().union(*(self._comes_from(child) for child in ast.iter_child_nodes(node)))

    def _returns_data(self, node: ast.Call) -> bool:
        own = adapter.is_callable_on_device(
            resolve_name(node.func, self._scope)
        )  # may return a pointer, whatever its name
        return not own and any(word in _callee_name(node) for word in DATA_CALLS)

    def _bind(self, target: ast.AST, origin: set[str]) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self._origins.setdefault(node.id, set()).update(origin)

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
        name, value = _callee_name(node), resolve_name(node.func, self._scope)
        if adapter.is_callable_on_device(value):
            self._visit_device_call(value, node)
            return
        harmless = self._is_harmless(node, value)
        if any(word in name for word in WRITING_CALLS) or not harmless:
            self._store_through(self._written_through(node))
        if name != "store" or not harmless:
            self._read |= self._reached(node)

    def _store_through(self, origins: set[str]) -> None:
        self._mutated |= origins
        self._stores.add(frozenset(origins))

    def _written_through(self, node: ast.Call) -> set[str]:
        """Returns the parameters behind the pointer: the first argument, one by keyword, or the object of a method."""
        arguments = [*node.args[:1], *(word.value for word in node.keywords if word.arg in ("pointer", "desc"))]
        if isinstance(node.func, ast.Attribute):
            arguments.append(node.func.value)
        if not self._is_harmless(node, None):
            arguments += [*node.args, *(word.value for word in node.keywords)]
        return set().union(*map(self._comes_from, arguments))

    def _is_harmless(self, node: ast.Call, value: Any) -> bool:
        """Whether a call is Triton's own, a builtin of Python, or a method, which store only if their name says so."""
        if "asm" in _callee_name(node) or "extern" in _callee_name(node):
            return False
        if isinstance(node.func, ast.Attribute):
            owner = resolve_name(node.func.value, self._scope)
            return not isinstance(owner, ModuleType) or owner.__name__.startswith(("triton", "math"))
        if isinstance(value, BuiltinFunctionType | type) or getattr(value, "__module__", "").startswith("triton"):
            return True
        return isinstance(node.func, ast.Name) and node.func.id in _BUILTINS

    def _reached(self, node: ast.Call) -> set[str]:
        """Returns the parameters behind anything that a call is given."""
        arguments = [*node.args, *(word.value for word in node.keywords)]
        if isinstance(node.func, ast.Attribute):
            arguments.append(node.func.value)
        return set().union(*map(self._comes_from, arguments))

    def _visit_device_call(self, callee: Any, node: ast.Call) -> None:
        """Takes in what a call of another JIT function stores and reads through its parameters."""
        if callee in self._callers:
            self._store_through(set().union(*map(self._comes_from, node.args)))
            self._read |= self._reached(node)
            return
        inner = _PointerFlow(callee, self._callers)
        use = inner.use()
        if any(isinstance(arg, ast.Starred) for arg in node.args):
            if use.stores:
                self._store_through(set().union(*map(self._comes_from, node.args)))
            self._read |= self._reached(node)
            return
        arguments = dict(zip(inner.params, node.args, strict=False))
        arguments |= {word.arg: word.value for word in node.keywords if word.arg}
        origins = {name: self._comes_from(arg) for name, arg in arguments.items()}
        for store in use.stores:
            self._store_through(set().union(*(origins[name] for name in store if name in origins)))
        self._read |= set().union(*(origins[name] for name in use.read if name in origins))


_BUILTINS = frozenset({"range", "min", "max", "len", "int", "float", "abs", "print", "isinstance", "getattr", "tuple"})


def _callee_name(node: ast.Call) -> str:
    """Returns the last part of the name of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def tensors_to_restore(fn: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tensors that a launch may change by name, in the order of the parameters."""
    names = mutated_parameters(fn)
    return {name: tensor for name, tensor in all_tensors(fn, named).items() if parameter_of(name) in names}


def all_tensors(fn: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all tensors of a call by name, in the order of the parameters."""
    return dict(item for name in fn.arg_names if name in named for item in _tensors(name, named[name]))


def parameter_of(name: str) -> str:
    """Returns the parameter that a tensor belongs to, which may be one of a tuple."""
    return name.partition(".")[0]


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the tensor that an argument is or describes, or those in a tuple."""
    if isinstance(value, tuple | list):
        for number, part in enumerate(value):
            yield from _tensors(f"{name}.{number}", part)
    elif (tensor := adapter.tensor_of(value)) is not None:
        yield name, tensor
