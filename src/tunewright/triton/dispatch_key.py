"""Dispatch keys: cheap tuples that distinguish calls, computed by code generated for the types of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from tunewright.triton import adapter

MAX_ENTRIES = 4096
"""Entries of a table before the oldest is dropped."""

KeyFunction = Callable[[Sequence[Any], Mapping[str, Any]], Hashable]

_TENSOR_ATTRIBUTES = ("dtype", "is_contiguous", "data_ptr", "shape", "stride")


class DispatchTable(NamedTuple):
    """Entries by dispatch key, for calls with arguments of the same types."""

    key_of: KeyFunction
    entries: dict[Hashable, Any]

    def insert(self, key: Hashable, entry: Any) -> None:
        """Adds an entry, and drops the oldest if there are too many."""
        while len(self.entries) >= MAX_ENTRIES:
            self.entries.pop(next(iter(self.entries)))
        self.entries[key] = entry


def make_dispatch_table(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    specialized: Mapping[int | str, adapter.Param] = MappingProxyType({}),
) -> DispatchTable:
    """Returns an empty table whose key function has no loop and no branch on types.

    A tensor is keyed by dtype, by shape and strides unless it is contiguous, and by the alignment of its address; a
    float only by its type, which the table has already; an int whose value is not part of the key by how Triton
    specializes on it, since it may be another at every call; everything else by value. `specialized` has the parameters
    whose value is not part of the key, by position and by name.
    """
    names = [f"p{i}" for i in range(len(args))]
    arguments: list[tuple[int | str, str, Any]] = list(zip(range(len(args)), names, args, strict=True))
    arguments += [(name, f"kwargs[{name!r}]", value) for name, value in kwargs.items()]
    parts = ["driver.active.get_current_device()"]
    for place, expression, value in arguments:
        if all(hasattr(value, name) for name in _TENSOR_ATTRIBUTES):
            parts.append(f"(t := {expression}).dtype, t.is_contiguous() or (t.shape, t.stride()), t.data_ptr() & 15")
        elif adapter.tensor_of(value) is not None or isinstance(value, tuple | list):
            parts.append(f"slow_key({expression})")
        elif type(value) is int and (param := specialized.get(place)) is not None:
            parts.append(_int_class(param, expression))
        elif type(value) is not float:
            parts.append(expression)
    if adapter.is_interpreting():
        parts[0] = "0"  # there may be no driver to ask
    unpacked = f"({''.join(f'{name}, ' for name in names)}) = args" if names else "pass"
    scope: dict[str, Any] = {"driver": adapter.driver_holder(), "slow_key": _slow_key}
    exec(f"def dispatch_key(args, kwargs):\n    {unpacked}\n    return ({', '.join(parts)},)", scope)
    return DispatchTable(scope["dispatch_key"], {})


def _int_class(param: adapter.Param, expression: str) -> str:
    """Returns code for how Triton specializes on an int: by its width, whether it is 1, and whether 16 divides it."""
    width = f"(i := {expression}).bit_length() >> 5"
    if not param.specialize:
        return width
    return f"{width}, 2 if i == 1 else i & 15 == 0" if param.align else f"{width}, i == 1"


def _slow_key(value: Any) -> Hashable:
    """Returns the key of a descriptor, a tensor stub, or a tuple of such values."""
    if isinstance(value, tuple | list):
        return tuple(map(_slow_key, value))
    tensor = adapter.tensor_of(value)
    if tensor is None:
        return type(value), None if type(value) is float else value
    strides = tuple(tensor.stride()) if hasattr(tensor, "stride") else ()
    return type(value), tensor.dtype, tuple(tensor.shape), strides, tensor.data_ptr() & 15
