"""Counts the calls of operators and tuned kernels inside a program that is recorded.

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

TRACED_MODULE = "tunewright.kernel.generated_call"
"""The module that generates the calls of kernels and operators."""

OPERATOR, KERNEL = "operator", "kernel"


def install(folder: str) -> None:
    """Counts calls from now on, and writes them to a folder when the process ends."""
    counts: Counter[Any] = Counter()
    sys.meta_path.insert(0, _Finder(counts))
    atexit.register(_write, counts, folder)


class _Finder(MetaPathFinder):
    """Finds the traced module, and gives it a loader that adds counting."""

    def __init__(self, counts: Counter[Any]) -> None:
        self._counts = counts

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != TRACED_MODULE:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._counts)
        return spec


class _Loader(Loader):
    """Loads the traced module with its own loader, then adds counting to the calls it generates."""

    def __init__(self, inner: Loader, counts: Counter[Any]) -> None:
        self._inner, self._counts = inner, counts

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        original = module.generate_call

        def counted_call(parameters: Sequence[Any], *rest: Any) -> Callable[..., Any]:
            names = [parameter.name for parameter in parameters]
            return _count_calls(original(parameters, *rest), names, self._counts)

        module.generate_call = counted_call  # type: ignore[attr-defined]


def _count_calls(call: Callable[..., Any], names: Sequence[str], counts: Counter[Any]) -> Callable[..., Any]:
    """Returns a method that counts its calls by shapes and the first dtype."""

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = dict(zip(names, args, strict=False)) | kwargs
        shapes = tuple((name, tuple(getattr(arguments.get(name), "shape", ()))) for name in names)
        dtype = next((str(arg.dtype) for arg in arguments.values() if hasattr(arg, "dtype")), "")
        counts[id(type(self)), shapes, dtype] += 1
        _kernels[id(type(self))] = self
        return call(self, *args, **kwargs)

    return counted


_kernels: dict[int, Any] = {}
"""Called kernels and operators by their class; each has a class of its own."""


def _write(counts: Counter[Any], folder: str) -> None:
    """Writes the counts to a file of this process."""
    records = [
        _record(_kernels[kernel], dict(shapes), dtype, count) for (kernel, shapes, dtype), count in counts.items()
    ]
    if records:
        with open(os.path.join(folder, f"{os.getpid()}.json"), "w") as file:
            json.dump(records, file)


def _record(kernel: Any, shapes: dict[str, tuple[int, ...]], dtype: str, count: int) -> dict[str, Any]:
    sizes: dict[str, int] = {}
    for parameter in kernel.parameters:
        role, shape = parameter.role, shapes.get(parameter.name, ())
        if role is not None and len(role.dims) == len(shape):
            sizes |= {dim: int(size) for dim, size in zip(role.dims, shape, strict=True) if isinstance(dim, str)}
    kind = OPERATOR if hasattr(kernel, "operator") else KERNEL
    return {"kind": kind, "name": kernel.name, "sizes": sizes, "dtype": dtype.rpartition(".")[2], "count": count}
