"""Copies of tensors taken before tuning, restored after launches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tunewright.lazy_logging import LazyLogger
from tunewright.triton.tensors import copy_to_host, plain

log = LazyLogger(__name__)


class Snapshot:
    """Copies of tensors by name, on the device, or on the host if they are rarely restored or do not fit."""

    def __init__(self, tensors: Mapping[str, Any], rarely: Collection[str] = ()) -> None:
        self._tensors = {name: plain(tensor) for name, tensor in tensors.items()}
        copies: dict[int, Any] = {}
        for name, tensor in tensors.items():
            if id(tensor) not in copies:  # one tensor may be several arguments
                copies[id(tensor)] = (copy_to_host if name in rarely else copy_tensor)(plain(tensor))
        self._copies = {name: copies[id(tensor)] for name, tensor in tensors.items()}

    def restore(self, names: Iterable[str] | None = None) -> None:
        """Restores the named tensors, or all; those without a copy stay as they are."""
        for name in self._tensors if names is None else names:
            if name in self._tensors:
                self._tensors[name].copy_(self._copies[name])

    def of(self, tensors: Mapping[str, Any]) -> Snapshot:
        """Returns a snapshot that restores other tensors with the same names from the same copies."""
        other = Snapshot({})
        other._tensors, other._copies = {name: plain(tensors[name]) for name in self._tensors}, self._copies
        return other


def copy_tensor(tensor: Any) -> Any:
    """Returns a copy on the device, or on the host if it does not fit."""
    try:
        return tensor.clone()
    except RuntimeError as error:  # torch's out-of-memory error
        log.info("the copy of an argument does not fit on the device; kept on the host: %s", error)
        return copy_to_host(tensor)
