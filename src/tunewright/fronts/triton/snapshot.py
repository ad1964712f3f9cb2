"""Snapshot: tensors as they were before anything was tried, put back after every launch that counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tunewright.remarks import Remarks

log = Remarks(__name__)


class Snapshot:
    """Copies of tensors; on the device, or on the host where there is no room for them."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        # `data` is the same memory without autograd, which must not take putting back for a change.
        bare = [getattr(tensor, "data", tensor) for tensor in {id(tensor): tensor for tensor in tensors}.values()]
        self._kept = [(tensor, _copy(tensor)) for tensor in bare]

    def restore(self) -> None:
        """Put everything back."""
        for tensor, copy in self._kept:
            tensor.copy_(copy)


def _copy(tensor: Any) -> Any:
    try:
        return tensor.clone()
    except RuntimeError as error:  # torch's own kind of being out of memory
        log.info("a copy of an argument does not fit on the device, and is kept on the host: %s", error)
        return tensor.cpu()
