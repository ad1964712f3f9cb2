"""Launch: a function compiled from MLIR, called with numpy arrays; needs nothing of the compiler."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tunewright.errors import BackendError, SignatureError
from tunewright.model.signature import Parameter

_address: Callable[[Any], Any] = (ctypes.c_char * 0).from_buffer
_SCALARS = {"f32": ctypes.c_float, "f64": ctypes.c_double, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
            "index": ctypes.c_int64, "i1": ctypes.c_bool}  # fmt: skip


@cache
def descriptor(rank: int) -> Any:
    """How compiled MLIR takes an array: where it begins, and its sizes and strides in elements."""
    numbers = ctypes.c_int64 * rank
    fields = [("base", ctypes.c_void_p), ("aligned", ctypes.c_void_p), ("offset", ctypes.c_int64)]
    fields += [("sizes", numbers), ("strides", numbers)]
    return type(f"Descriptor{rank}", (ctypes.Structure,), {"_fields_": fields})


@cache
def openmp() -> str:
    """The path of the OpenMP library that compiled MLIR calls; loaded once, for everyone to see."""
    places = [Path(sys.prefix) / "lib" / "libiomp5.so", *map(Path, ("libiomp5.so", "libomp.so.5", "libomp.so"))]
    for place in places:
        if place.is_absolute() and not place.is_file():
            continue
        try:
            ctypes.CDLL(str(place), mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return str(place)
    raise BackendError("several threads need an OpenMP library with LLVM's interface: pip install intel-openmp")


class MlirLaunch:
    """A compiled function that takes numpy arrays and numbers. It keeps nothing between calls, and may be called by
    several threads at once: what it needs besides its arguments it allocates anew."""

    def __init__(self, function: Any, parameters: Sequence[Parameter], types: Sequence[str]) -> None:
        self._function, self._parameters, self._types = function, parameters, types
        self._function.restype = None

    def __call__(self, *args: Any) -> None:
        self._function(*[
            self._array(i, arg) if arg.__class__ is np.ndarray else self._other(i, arg) for i, arg in enumerate(args)
        ])  # fmt: skip

    def _array(self, i: int, array: Any) -> Any:
        try:
            at = ctypes.addressof(_address(array))
        except (TypeError, ValueError, BufferError):
            at = self._slowly(i, array)
        rank = array.ndim
        made = descriptor(rank)
        sizes, strides, each = array.shape, array.strides, array.itemsize
        return ctypes.byref(made(at, at, 0, sizes, tuple([step // each for step in strides])))

    def _slowly(self, i: int, array: Any) -> int:
        """A read-only or empty array has an address too; only what is not written may be read-only."""
        parameter = self._parameters[i]
        if not array.flags.writeable and (parameter.role is None or parameter.role.writes):
            raise SignatureError(f"{parameter.name} is read-only; declare it as In if the kernel only reads it")
        return int(array.ctypes.data)

    def _other(self, i: int, value: Any) -> Any:
        if isinstance(value, np.ndarray):  # such as memory-mapped ones
            return self._array(i, value)
        kind = _SCALARS.get(self._types[i]) if i < len(self._types) else None
        if kind is None or not isinstance(value, bool | int | float | np.generic):
            raise SignatureError(
                f"{self._parameters[i].name} is a {type(value).__name__}; the payload takes {self._types[i]}"
            )
        plain: Any = value.item() if isinstance(value, np.generic) else value
        return kind(plain)
