"""Names of the functions in captured graphs, by which another process finds the same ones."""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from tunewright.errors import BackendError
from tunewright.torch.inductor.adapter import hook

_ROOTS = frozenset({"torch", "_operator", "operator", "math", "builtins"})
"""The packages whose functions a graph may name."""

_BUILTINS = frozenset(
    {"abs", "all", "any", "bool", "divmod", "float", "getattr", "int", "len", "list", "max", "min", "pow", "range",
     "round", "slice", "sum", "tuple"}
)  # fmt: skip
"""Functions of Python itself that a graph may name: none of them runs code that is given as text."""


@cache
def _namespaces() -> tuple[ModuleType | type, ...]:
    """Returns where functions are looked for that do not say where they are."""
    names = "torch", "torch.nn.functional", "torch._C._nn", "torch.special", "torch.linalg", "torch.fft", "operator"
    return (*map(import_module, names), torch.Tensor, math, import_module("builtins"))


def name_of(function: Any) -> str:
    """Returns the name under which another process finds the same function."""
    if isinstance(function, (hook("torch._ops.OpOverload"), hook("torch._ops.OpOverloadPacket"))):
        return f"torch.ops.{function}"
    name = str(getattr(function, "__name__", ""))
    places = [str(getattr(function, "__module__", None) or "")]
    places += [f"{one.__module__}.Tensor" if isinstance(one, type) else one.__name__ for one in _namespaces()]
    names = dict.fromkeys((str(getattr(function, "__qualname__", name)), name))
    for path in (f"{place}.{one}" for place in places for one in names if place and one):
        try:
            if find_function(path) is function:
                return path
        except BackendError:
            continue
    raise BackendError(f"it calls {name or function!r}, which other processes do not know")


def find_function(path: str) -> Any:
    """Returns a function of PyTorch or Python by its name; raises BackendError if there is none that may be named."""
    root, *names = path.split(".")
    if root not in _ROOTS or (root == "builtins" and names[:1] not in ([name] for name in _BUILTINS)):
        raise BackendError(f"there is no {path} in PyTorch; use the release of torch that it was written with")
    value: Any = import_module(root)
    known = root
    for name in names:
        known = f"{known}.{name}"
        try:
            value = getattr(value, name)
        except AttributeError:
            try:
                value = import_module(known)
            except ImportError as error:
                raise BackendError(f"there is no {path}; use the release of torch that it was written with") from error
        if isinstance(value, ModuleType) and value.__name__.partition(".")[0] not in _ROOTS:
            raise BackendError(f"{path} is not a function of PyTorch, but of {value.__name__}; a graph may not name it")
    return value
