"""Watching: counts the calls of operators and tuned kernels inside a program that is recorded.

Loaded from its file in every Python that the program starts, so it imports nothing of ours, and little else.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

PLACE = "tunewright.fronts.call"
"""The module that writes out the calls of kernels and operators."""

OPERATOR, KERNEL = "operator", "kernel"


def install(folder: str) -> None:
    """Count from now on, and write to a folder when the process ends."""
    counts: Counter[Any] = Counter()
    sys.meta_path.insert(0, _Watcher(counts))
    atexit.register(_write, counts, folder)


class _Watcher(MetaPathFinder):
    """Finds the module that makes calls, and has it make calls that are counted."""

    def __init__(self, counts: Counter[Any]) -> None:
        self._counts = counts

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != PLACE:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._counts)
        return spec


class _Loader(Loader):
    """Loads that module as its own loader does, then puts counting around what it makes."""

    def __init__(self, inner: Loader, counts: Counter[Any]) -> None:
        self._inner, self._counts = inner, counts

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        made = module.cached_call

        def counted_call(parameters: Sequence[Any], *rest: Any) -> Callable[..., Any]:
            return _counted(made(parameters, *rest), [one.name for one in parameters], self._counts)

        module.cached_call = counted_call  # type: ignore[attr-defined]


def _counted(call: Callable[..., Any], names: Sequence[str], counts: Counter[Any]) -> Callable[..., Any]:
    """A method that counts its calls by what tells them apart: shapes and the first dtype."""

    def counted(self: Any, *args: Any, **named: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | named
        shapes = tuple((name, tuple(getattr(given.get(name), "shape", ()))) for name in names)
        dtype = next((str(arg.dtype) for arg in given.values() if hasattr(arg, "dtype")), "")
        counts[id(type(self)), shapes, dtype] += 1
        _kernels[id(type(self))] = self
        return call(self, *args, **named)

    return counted


_kernels: dict[int, Any] = {}
"""Whoever was called, by its class, which is its own."""


def _write(counts: Counter[Any], folder: str) -> None:
    """What was counted, as a file of this process."""
    seen = [_seen(_kernels[kernel], dict(shapes), dtype, count) for (kernel, shapes, dtype), count in counts.items()]
    if seen:
        with open(os.path.join(folder, f"{os.getpid()}.json"), "w") as file:
            json.dump(seen, file)


def _seen(kernel: Any, shapes: dict[str, tuple[int, ...]], dtype: str, count: int) -> dict[str, Any]:
    sizes: dict[str, int] = {}
    for parameter in kernel.parameters:
        role, shape = parameter.role, shapes.get(parameter.name, ())
        if role is not None and len(role.dims) == len(shape):
            sizes |= {dim: int(size) for dim, size in zip(role.dims, shape, strict=True) if isinstance(dim, str)}
    kind = OPERATOR if hasattr(kernel, "operator") else KERNEL
    return {"kind": kind, "name": kernel.name, "sizes": sizes, "dtype": dtype.rpartition(".")[2], "count": count}
