"""Arrays of torch, JAX, CuPy and other libraries with DLPack: copied to the host, and made from host memory.

A library is imported only if an argument is one of its arrays. Arrays in the memory of a device are copied to it and
back; that code has not been run on a device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.cases.inputs import NARROW_FLOATS, parse_dtype
from tunewright.errors import SignatureError
from tunewright.model.foreign import device_of, dtype_name, is_foreign, library_of

FOREIGN_ALIGNMENT = 64
"""Bytes to which other libraries align their arrays; JAX copies what is not."""

_CONTAINERS = (tuple, list)


def to_host(value: Any) -> Any:
    """Returns arrays of other libraries, also in tuples and lists, as numpy arrays; other values as they are."""
    if value.__class__ is np.ndarray:
        return value
    if type(value) in _CONTAINERS:
        return type(value)(to_host(part) for part in value)
    return host_array(value) if is_foreign(value) else value


def on_host(function: Callable[[NDArray[Any]], Any], value: Any) -> Any:
    """Applies a function to an array, and returns the result as an array of the same library.

    A dtype that the library does not have is not used: JAX has no doubles unless they are enabled.
    """
    if isinstance(value, np.ndarray):
        return function(value)
    if not is_foreign(value):
        return value
    result = np.asarray(function(host_array(value)))
    if library_of(value) == "jax" and result.dtype.itemsize == 8 and not sys.modules["jax"].config.jax_enable_x64:
        result = result.astype(parse_dtype(dtype_name(value)))
    return from_host(result, library_of(value), device_of(value), value)


def host_array(array: Any) -> NDArray[Any]:
    """Returns an array of another library as a numpy array, which shares its memory if that is the host's."""
    library = library_of(array)
    if library == "torch":
        return _torch_to_host(array)
    if library == "jax":
        return np.asarray(array)
    if library == "cupy":
        copied: NDArray[Any] = array.get()
        return copied
    if device_of(array) == "cpu" and hasattr(array, "__dlpack__"):
        return np.from_dlpack(array)
    if "cupy" in sys.modules:  # anything with the CUDA array interface
        shared: NDArray[Any] = sys.modules["cupy"].asarray(array).get()
        return shared
    raise SignatureError(f"a {type(array).__name__} on {device_of(array)} cannot be copied to the host without CuPy")


def from_host(array: NDArray[Any], library: str, device: str, like: Any = None) -> Any:
    """Returns a numpy array as an array of a library on a device; it shares memory on the host where possible.

    `like` is an array of a library that is not known by name.
    """
    if library == "torch":
        return _torch_from_host(array, device)
    if library == "jax":
        return _jax_from_host(array, device)
    if library == "cupy":
        cupy = import_module("cupy")
        with cupy.cuda.Device(int(device.rpartition(":")[2])):
            return cupy.asarray(array)
    if like is not None and device == "cpu":
        namespace = getattr(like, "__array_namespace__", lambda: sys.modules[type(like).__module__.partition(".")[0]])()
        return namespace.from_dlpack(array)
    raise SignatureError(f"no recipe for arrays of {library} on {device}; give the kernel an `inputs=` function")


class ForeignCopy:
    """An array of another library that has the contents of host memory.

    Arrays on the host share the memory. Those of a device are copied to it by `push` and back by `pull`. One that can
    be neither shared nor written, such as an array of JAX on a device, `is_fixed`: its contents do not change.
    """

    def __init__(self, model: Any, memory: NDArray[Any]) -> None:
        self._memory = memory
        self.array = from_host(memory, library_of(model), device_of(model), model)
        on_cpu = device_of(self.array) == "cpu"
        self._is_shared = on_cpu and (not memory.size or host_array(self.array).ctypes.data == memory.ctypes.data)
        self.is_immutable = library_of(model) == "jax"
        self.is_fixed = self.is_immutable and not self._is_shared

    def push(self) -> None:
        """Copies the host's memory to the array."""
        if not self._is_shared and not self.is_fixed:
            self.array[...] = from_host(self._memory, library_of(self.array), device_of(self.array), self.array)

    def pull(self) -> None:
        """Copies the array to the host's memory."""
        if not self._is_shared and not self.is_fixed:
            self._memory[...] = host_array(self.array)


def _torch_to_host(tensor: Any) -> NDArray[Any]:
    torch, name = sys.modules["torch"], dtype_name(tensor)
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if name not in NARROW_FLOATS:
        plain: NDArray[Any] = tensor.numpy()
        return plain
    bits: NDArray[Any] = tensor.view(torch.int16 if tensor.element_size() == 2 else torch.uint8).numpy()
    return bits.view(parse_dtype(name))


def _torch_from_host(array: NDArray[Any], device: str) -> Any:
    torch = import_module("torch")
    if array.dtype.name in NARROW_FLOATS:
        bits = array.view(np.int16 if array.itemsize == 2 else np.uint8)
        tensor = torch.from_numpy(bits).view(getattr(torch, array.dtype.name))
    else:
        tensor = torch.from_numpy(array)
    return tensor if device == "cpu" else tensor.to(device.replace("rocm", "cuda"))


def _jax_from_host(array: NDArray[Any], device: str) -> Any:
    jax = import_module("jax")
    kind, _, index = device.partition(":")
    place = jax.devices("gpu" if kind in ("cuda", "rocm") else kind)[int(index or 0)]
    return jax.device_put(array, place, may_alias=True)
