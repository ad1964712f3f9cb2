"""Copies of tensors taken before tuning, restored after launches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tunewright.lazy_logging import LazyLogger

log = LazyLogger(__name__)


class Snapshot:
    """Copies of tensors on the device, or on the host if they do not fit."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        # `data` is the same memory without autograd, which must not record the restoring.
        plain = [getattr(tensor, "data", tensor) for tensor in {id(tensor): tensor for tensor in tensors}.values()]
        self._copies = [(tensor, _copy(tensor)) for tensor in plain]

    def restore(self) -> None:
        """Restores all tensors."""
        for tensor, copy in self._copies:
            tensor.copy_(copy)


def _copy(tensor: Any) -> Any:
    try:
        return tensor.clone()
    except RuntimeError as error:  # torch's out-of-memory error
        log.info("the copy of an argument does not fit on the device; kept on the host: %s", error)
        return tensor.cpu()
