"""Marks: a cheap tuple that tells calls apart; read by code written for the types of a call's arguments."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from tunewright.backends.triton import adapter

MOST = 4096
"""Calls that are told apart before the oldest is forgotten."""

Read = Callable[[Sequence[Any], Mapping[str, Any]], Hashable]

_CHEAP = ("dtype", "is_contiguous", "data_ptr", "shape", "stride")


class Reader(NamedTuple):
    """How calls with arguments of these types are told apart, and what was found for each."""

    read: Read
    found: dict[Hashable, Any]

    def keep(self, mark: Hashable, entry: Any) -> None:
        """Remember an entry, and forget the oldest where there are too many."""
        while len(self.found) >= MOST:
            self.found.pop(next(iter(self.found)))
        self.found[mark] = entry


def reader(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Reader:
    """Reads what distinguishes calls with arguments like these: no loop, no branch on types.

    A tensor counts by dtype, by shape and strides unless it is contiguous, and by how its address is aligned; a float
    by its type alone, which is known already; everything else by value.
    """
    names = [f"p{i}" for i in range(len(args))]
    places = list(zip(names, args, strict=True))
    places += [(f"kwargs[{name!r}]", value) for name, value in kwargs.items()]
    parts = ["driver.active.get_current_device()"]
    for place, value in places:
        if all(hasattr(value, name) for name in _CHEAP):
            parts.append(f"(t := {place}).dtype, t.is_contiguous() or (t.shape, t.stride()), t.data_ptr() & 15")
        elif adapter.tensor_of(value) is not None or isinstance(value, tuple | list):
            parts.append(f"look({place})")
        elif type(value) is not float:
            parts.append(place)
    if adapter.is_interpreting():
        parts[0] = "0"  # there may be no driver to ask
    unpacked = f"({''.join(f'{name}, ' for name in names)}) = args" if names else "pass"
    scope: dict[str, Any] = {"driver": adapter.runtime(), "look": _look}
    exec(f"def read(args, kwargs):\n    {unpacked}\n    return ({', '.join(parts)},)", scope)
    return Reader(scope["read"], {})


def _look(value: Any) -> Hashable:
    """What distinguishes a descriptor, a stand-in for a tensor, or a tuple with such things in it."""
    if isinstance(value, tuple | list):
        return tuple(map(_look, value))
    tensor = adapter.tensor_of(value)
    if tensor is None:
        return type(value), None if type(value) is float else value
    strides = tuple(tensor.stride()) if hasattr(tensor, "stride") else ()
    return type(value), tensor.dtype, tuple(tensor.shape), strides, tensor.data_ptr() & 15
