"""Arrays of other libraries (torch, JAX, CuPy): what a signature says about them. Imports none of the libraries."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

DEVICES = {1: "cpu", 2: "cuda", 3: "cuda host", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda managed", 14: "oneapi"}
"""The kinds of devices that DLPack numbers."""


_NUMPY = (np.ndarray, np.generic)


def is_foreign(value: Any) -> bool:
    """Whether a value is an array of another library: one with DLPack or the CUDA array interface."""
    if isinstance(value, _NUMPY) or not hasattr(value, "shape"):
        return False
    return hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__") or is_traced([value])


def is_traced(args: Iterable[Any]) -> bool:
    """Whether an argument has no contents, since JAX is tracing the caller."""
    jax = sys.modules.get("jax")
    return jax is not None and any(isinstance(arg, jax.core.Tracer) for arg in args)


def library_of(array: Any) -> str:
    """Returns the name of the library that an array belongs to: "torch", "jax", "cupy"."""
    name = type(array).__module__.partition(".")[0]
    return "jax" if name == "jaxlib" else name


def device_of(array: Any) -> str:
    """Returns the kind and index of the device that has an array: "cpu", "cuda:0"."""
    if is_traced([array]):  # on the device for which JAX compiles
        device = sys.modules["jax"].devices()[0]
        return "cpu" if device.platform == "cpu" else f"{device.platform.replace('gpu', 'cuda')}:{device.id}"
    try:
        kind, index = array.__dlpack_device__()
    except (AttributeError, BufferError, NotImplementedError, RuntimeError, TypeError, ValueError):
        # A device that DLPack does not know, or several of them.
        return str(getattr(array, "device", "cuda"))
    return "cpu" if int(kind) == 1 else f"{DEVICES.get(int(kind), f'device {int(kind)}')}:{index}"


def dtype_name(array: Any) -> str:
    """Returns the name of an array's dtype, as numpy and ml_dtypes have it: "float32", "bfloat16"."""
    return str(getattr(array.dtype, "name", array.dtype)).rpartition(".")[2]


def element_strides(array: Any) -> tuple[int, ...]:
    """Returns the strides of an array in elements; an array that shows none is contiguous."""
    strides = getattr(array, "strides", None)
    if strides is not None and hasattr(array, "itemsize"):
        return tuple(step // array.itemsize for step in strides)
    if hasattr(array, "stride"):
        return tuple(array.stride())
    return contiguous_strides(tuple(array.shape))


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the strides, in elements, of a contiguous array."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def foreign_key(array: Any) -> Hashable:
    """Returns what distinguishes an array in a dispatch key: its library, shape, layout, dtype and device."""
    device = getattr(array, "sharding", None) or getattr(array, "device", None)
    layout = array.stride() if hasattr(array, "stride") else getattr(array, "strides", None)
    return type(array), array.shape, layout, array.dtype, device
