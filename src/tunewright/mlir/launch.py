"""Calls a function compiled from MLIR with numpy arrays; does not need the compiler."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tunewright.errors import BackendError, SignatureError
from tunewright.model.signature import Parameter

_buffer_address: Callable[[Any], Any] = (ctypes.c_char * 0).from_buffer
_SCALARS = {"f32": ctypes.c_float, "f64": ctypes.c_double, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
            "index": ctypes.c_int64, "i1": ctypes.c_bool}  # fmt: skip


_pack_pointers = struct.Struct("QQ").pack


@lru_cache(maxsize=4096)
def _layout(sizes: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bytes:
    """Returns a memref descriptor without its pointers: the offset, the sizes, and the strides in elements."""
    return struct.pack(f"{2 * len(sizes) + 1}q", 0, *sizes, *(stride // itemsize for stride in strides))


@cache
def load_openmp() -> str:
    """Loads the OpenMP library that compiled MLIR calls, with global symbols. Returns its path."""
    candidates = [Path(sys.prefix) / "lib" / "libiomp5.so", *map(Path, ("libiomp5.so", "libomp.so.5", "libomp.so"))]
    for path in candidates:
        if path.is_absolute() and not path.is_file():
            continue
        try:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return str(path)
    raise BackendError("several threads need an OpenMP library with LLVM's interface: pip install intel-openmp")


class MlirLaunch:
    """A compiled function that takes numpy arrays and scalars. It has no state and may be called by several threads."""

    def __init__(self, function: Any, parameters: Sequence[Parameter], types: Sequence[str]) -> None:
        self._function, self._parameters, self._types = function, parameters, types
        self._function.restype = None
        self._narrow = frozenset(i for i, kind in enumerate(types) if kind.endswith("xbf16>"))

    def __call__(self, *args: Any) -> None:
        self._function(*[
            self._array(i, arg) if arg.__class__ is np.ndarray else self._scalar(i, arg) for i, arg in enumerate(args)
        ])  # fmt: skip

    def _array(self, i: int, array: Any) -> bytes:
        """Returns the memref descriptor of an array, which is passed by its address."""
        if i in self._narrow:
            array = array.view(np.uint16)  # numpy has no buffers of bfloat16
        try:
            address = ctypes.addressof(_buffer_address(array))
        except (TypeError, ValueError, BufferError):
            address = self._address(i, array)
        return _pack_pointers(address, address) + _layout(array.shape, array.strides, array.itemsize)

    def _address(self, i: int, array: Any) -> int:
        """Returns the address of a read-only or empty array; raises if the kernel writes to a read-only one."""
        parameter = self._parameters[i]
        if not array.flags.writeable and (parameter.role is None or parameter.role.writes):
            raise SignatureError(f"{parameter.name} is read-only; declare it as In if the kernel only reads it")
        return int(array.ctypes.data)

    def _scalar(self, i: int, value: Any) -> Any:
        if isinstance(value, np.ndarray):  # such as memory-mapped ones
            return self._array(i, value)
        kind = _SCALARS.get(self._types[i]) if i < len(self._types) else None
        if kind is None or not isinstance(value, bool | int | float | np.generic):
            raise SignatureError(
                f"{self._parameters[i].name} is a {type(value).__name__}; the payload takes {self._types[i]}"
            )
        plain: Any = value.item() if isinstance(value, np.generic) else value
        return kind(plain)
