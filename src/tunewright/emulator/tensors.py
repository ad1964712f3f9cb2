"""Tensors as bytes and back, by methods that torch's tensors have: torch itself is not imported here."""

from __future__ import annotations

from typing import Any

import numpy as np

from tunewright.emulator.types import Array


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor in memory."""
    return hasattr(value, "data_ptr") and hasattr(value, "untyped_storage")


def to_bytes(tensor: Any) -> Array:
    """Returns the bytes from a tensor's first element to its last."""
    own = tensor.detach()
    size, width = 0, own.element_size()
    if own.numel():
        size = (sum((length - 1) * step for length, step in zip(own.shape, own.stride(), strict=True)) + 1) * width
    storage = own.untyped_storage()
    flat = own.new_empty(0).byte().set_(storage, own.storage_offset() * width, (size,), (1,))
    return np.asarray(flat.numpy())


def from_bytes(like: Any, body: Array) -> Any:
    """Returns a tensor with the shape, strides and dtype of another, and these bytes."""
    own = like.detach()
    memory = own.new_empty(0).byte().new_tensor(body)
    return own.new_empty(0).set_(memory.untyped_storage(), 0, own.size(), own.stride())


def element_mask(like: Any, mask: Array) -> Any:
    """Returns which elements of a tensor have their first byte in a mask of its bytes, as a tensor."""
    own = like.detach()
    first = np.ascontiguousarray(mask[:: own.element_size()])
    memory = own.new_empty(0).byte().new_tensor(first.view(np.uint8))
    return memory.new_empty(0).set_(memory.untyped_storage(), 0, own.size(), own.stride()).bool()
