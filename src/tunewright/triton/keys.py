"""Builds the key of a call of a Triton kernel: what must be equal to reuse a decision."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from tunewright.backends.host import cpu, digest, function_digest
from tunewright.errors import SignatureError
from tunewright.kernel.buckets import Buckets
from tunewright.model.device import Device
from tunewright.model.key import Key
from tunewright.model.signature import Bucket, Signature, layout_of
from tunewright.triton import adapter
from tunewright.triton.options import AutotuneOptions
from tunewright.triton.source import kernel_digest


class KeyBuilder:
    """Builds keys of one kernel from what its author declares and what Triton specializes on."""

    def __init__(self, fn: Any, key: Sequence[str], options: AutotuneOptions, *, own_clock: bool) -> None:
        self._fn, self._key, self._options, self._own_clock = fn, tuple(key), options, own_clock
        self.buckets = Buckets(options.buckets)
        self.params = adapter.params_of(fn)
        if unknown := [name for name in self.buckets if name not in self._key]:
            raise SignatureError(f"buckets= names {', '.join(unknown)}, which is not in key={list(self._key)}; add it")

    @property
    def name(self) -> str:
        """The kernel's name in the store: without module and path, so that moving a file loses nothing."""
        function = adapter.innermost(self._fn).fn
        return self._options.name or str(function.__qualname__).rpartition("<locals>.")[2]

    def signature(self, named: Mapping[str, Any], bucket: Bucket | None = None) -> Signature:
        """Returns the signature of a call: integers of `key=` are sizes, the rest is what Triton specializes on."""
        sizes = {name: named[name] for name in self._key if _is_size(named.get(name))}
        descriptions = [
            self._describe_argument(param, named[param.name], sizes) for param in self.params if param.name in named
        ]
        return Signature(tuple(descriptions), {n: bucket(n, size) if bucket else size for n, size in sizes.items()})

    def _describe_argument(self, param: adapter.Param, value: Any, sizes: Mapping[str, int]) -> str:
        name = param.name
        if name in sizes:
            return f"{name}: int"
        if name in self._key and adapter.tensor_of(value) is None:
            return f"{name}: {type(value).__name__} {value}"
        return f"{name}: {_describe_value(param, value)}"

    def without_specialization(self, signature: Signature) -> tuple[Any, ...]:
        """Returns what Triton's own autotuner tells calls apart by: the values of `key=`, and the dtypes of tensors."""
        parts = []
        for text in signature.args:
            name, _, rest = text.partition(": ")
            parts.append(text if name in self._key else f"{name}: {' '.join(_DTYPES.findall(rest))}")
        return (*parts, *signature.dims.items())

    def key(self, signature: Signature) -> Key:
        """Returns the key on the current device."""
        interpreted = adapter.is_interpreted(self._fn)
        mode = adapter.execution_mode(interpreted=interpreted)
        mode["regime"] = "as do_bench times" if self._own_clock else "flushed"
        if self._options.reference is not None:
            mode["check"] = digest(function_digest(self._options.reference))[:12]
        device = cpu() if interpreted else self.device()
        return Key(self.name, self.source, signature, device, adapter.toolchain(), mode)

    def device(self) -> Device:
        """Returns the current device."""
        return adapter.device()

    @cached_property
    def source(self) -> str:
        """A digest of the kernel's source."""
        return kernel_digest(self._fn)


_DTYPES = re.compile(r"\*k?\w+|descriptor of \w+")
"""The dtypes of tensors in the description of an argument."""


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _describe_value(param: adapter.Param, value: Any) -> str:
    """Returns the type of an argument, what Triton specializes on, and the layout class of a tensor."""
    tensor = adapter.tensor_of(value)
    if tensor is not None and tensor is not value:
        return f"descriptor of {_dtype_name(tensor)} {_layout(tensor)}"  # its block is set by the config's hook
    if tensor is None and isinstance(value, tuple):
        return f"({', '.join(_describe_value(param, part) for part in value)})"
    kind, special = adapter.specialize_argument(param, value)
    text = kind if special == "" else f"{kind} {_SPECIALIZATION_NAMES.get(special, special)}"
    return text if tensor is None else f"{text} {_layout(tensor)}"


_SPECIALIZATION_NAMES = {"D": "/16"}


def _dtype_name(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _layout(tensor: Any) -> str:
    """Returns the layout class of a tensor; "C" for a stub without strides."""
    if not hasattr(tensor, "stride") or not hasattr(tensor, "is_contiguous"):
        return "C"
    return "C" if tensor.is_contiguous() else layout_of(tuple(tensor.shape), tuple(tensor.stride()))
