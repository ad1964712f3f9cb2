"""Dispatch keys: cheap tuples that distinguish calls, computed by code generated for the types of the arguments."""

from __future__ import annotations

from collections import defaultdict
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
    checked_key_of: Callable[[Sequence[Any]], Hashable] = lambda _: None
    """The same for positional arguments alone; None for other types of them."""

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
    parts, tensors, ints = ["driver.active.get_current_device()"], [], defaultdict[str, list[str]](list)
    for place, expression, value in arguments:
        if all(hasattr(value, name) for name in _TENSOR_ATTRIBUTES):
            tensors.append(expression)
        elif adapter.tensor_of(value) is not None or isinstance(value, tuple | list):
            parts.append(f"slow_key({expression})")
        elif type(value) is int and (param := specialized.get(place)) is not None:
            ints[_int_classes(param)].append(expression)
        elif type(value) is not float:
            parts.append(expression)
    if adapter.is_interpreting():
        parts[0] = "0"  # there may be no driver to ask
    parts += [f"{classes}[{', '.join(expressions)},]" for classes, expressions in ints.items()]
    parts += _tensor_parts(tensors)
    unpacked = f"({''.join(f'{name}, ' for name in names)}) = args" if names else "pass"
    scope: dict[str, Any] = {"driver": adapter.driver_holder(), "slow_key": _slow_key, **_INT_CLASSES}
    scope |= {f"T{i}": type(value) for i, value in enumerate(args)}
    checks = " and ".join(f"type({name}) is T{i}" for i, name in enumerate(names))
    key, condition = f"({', '.join(parts)},)", checks if checks and not kwargs else "False"
    exec(f"def dispatch_key(args, kwargs):\n    {unpacked}\n    return {key}", scope)
    exec(f"def checked_key(args):\n    {unpacked}\n    if {condition}:\n        return {key}", scope)
    return DispatchTable(scope["dispatch_key"], {}, scope["checked_key"])


NO_TABLE = DispatchTable(lambda *_: None, {})


def _tensor_parts(tensors: Sequence[str]) -> list[str]:
    """Returns code for dtypes, layouts and alignments; one value for all tensors if all are contiguous, or aligned."""
    if not tensors:
        return []
    contiguous = " and ".join(f"{tensor}.is_contiguous()" for tensor in tensors)
    layouts = "".join(f"{tensor}.is_contiguous() or ({tensor}.shape, {tensor}.stride()), " for tensor in tensors)
    addresses = [f"{tensor}.data_ptr()" for tensor in tensors]
    offsets = "".join(f"{address} & 15, " for address in addresses)
    return [
        *(f"{tensor}.dtype" for tensor in tensors),
        f"({contiguous}) or ({layouts})",
        f"({' | '.join(addresses)}) & 15 and ({offsets})",
    ]


class _IntClasses(dict[tuple[int, ...], int]):
    """How Triton specializes on ints, as one number: by width, and if asked, whether each is 1 or 16 divides it.

    Those that came are remembered, since one look-up is cheaper than a computation for each int.
    """

    def __init__(self, *, ones: bool, sixteens: bool) -> None:
        self._ones, self._sixteens = ones, sixteens

    def __missing__(self, values: tuple[int, ...]) -> int:
        if len(self) >= MAX_ENTRIES:
            self.clear()  # in one step, since other threads launch too
        self[values] = found = int.from_bytes(map(self._class, values))
        return found

    def _class(self, value: int) -> int:
        kind = 1 if self._ones and value == 1 else 2 if self._sixteens and value & 15 == 0 else 0
        return min(value.bit_length() >> 5, 80) * 3 + kind


_INT_CLASSES = {
    "width": _IntClasses(ones=False, sixteens=False),
    "width_and_one": _IntClasses(ones=True, sixteens=False),
    "width_one_and_sixteen": _IntClasses(ones=True, sixteens=True),
}


def _int_classes(param: adapter.Param) -> str:
    """Returns the name of the classes by which Triton specializes on a parameter."""
    return "width" if not param.specialize else "width_one_and_sixteen" if param.align else "width_and_one"


def _slow_key(value: Any) -> Hashable:
    """Returns the key of a descriptor, a tensor stub, or a tuple of such values."""
    if isinstance(value, tuple | list):
        return tuple(map(_slow_key, value))
    tensor = adapter.tensor_of(value)
    if tensor is None:
        return type(value), None if type(value) is float else value
    strides = tuple(tensor.stride()) if hasattr(tensor, "stride") else ()
    return type(value), tensor.dtype, tuple(tensor.shape), strides, tensor.data_ptr() & 15
