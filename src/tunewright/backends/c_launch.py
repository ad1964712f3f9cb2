"""Launches of C functions with ctypes: numpy arrays become pointers, numbers are passed as the function takes them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tunewright.errors import SignatureError
from tunewright.model.signature import Parameter


class CLaunch:
    """A C function that takes numpy arrays and numbers; it keeps its library loaded."""

    def __init__(self, function: Any, parameters: Sequence[Parameter], dims: Sequence[tuple[int, int]]) -> None:
        self._function, self._parameters, self._dims = function, parameters, dims

    def __call__(self, *args: Any) -> None:
        function = self._function
        if function.argtypes is None:
            kinds = [_kind(p, arg) for p, arg in zip(self._parameters, args, strict=True)]
            function.argtypes = kinds + [ctypes.c_int64] * len(self._dims)
        try:
            converted = [_address(arg) if arg.__class__ is np.ndarray else arg for arg in args]
        except (TypeError, ValueError):
            converted = self._convert_all(args)
        sizes = [args[i].shape[axis] for i, axis in self._dims] if self._dims else []
        try:
            function(*converted, *sizes)
        except ctypes.ArgumentError:
            try:
                function(*self._convert_all(args), *sizes)
            except ctypes.ArgumentError as error:
                raise SignatureError(f"an argument is not of the kind that the C function takes: {error}") from error

    def _convert_all(self, args: Sequence[Any]) -> list[Any]:
        return [self._convert(parameter, arg) for parameter, arg in zip(self._parameters, args, strict=True)]

    @staticmethod
    def _convert(parameter: Parameter, arg: Any) -> Any:
        """Converts one argument; a read-only array is passed only to a parameter that is not written."""
        if isinstance(arg, np.generic):
            return arg.item()
        if not isinstance(arg, np.ndarray):
            return arg
        if not arg.flags.writeable and (parameter.role is None or parameter.role.writes):
            raise SignatureError(f"{parameter.name} is read-only; declare it as In if the kernel only reads it")
        return arg.ctypes.data


_address: Callable[[Any], Any] = (ctypes.c_char * 0).from_buffer
"""Converts a writable array to what ctypes accepts as a pointer; four times faster than `array.ctypes.data`."""


def _kind(parameter: Parameter, arg: Any) -> Any:
    """Returns the C type of an argument: as declared, else that of the first call."""
    if parameter.role is not None or isinstance(arg, np.ndarray):
        return ctypes.c_void_p
    if parameter.kind is float or (parameter.kind is None and isinstance(arg, float | np.floating)):
        return ctypes.c_double
    if parameter.kind in (int, bool) or isinstance(arg, bool | int | np.integer | np.bool_):
        return ctypes.c_int64
    raise SignatureError(f"a C kernel takes numpy arrays, ints and floats; {parameter.name} is a {type(arg).__name__}")


def dim_places(parameters: Sequence[Parameter]) -> list[tuple[int, int]]:
    """Returns where each named dimension first occurs: (argument, axis), in order of appearance."""
    places: dict[str, tuple[int, int]] = {}
    for i, parameter in enumerate(parameters):
        for axis, dim in enumerate(parameter.role.dims if parameter.role else ()):
            if isinstance(dim, str):
                places.setdefault(dim, (i, axis))
    return list(places.values())
