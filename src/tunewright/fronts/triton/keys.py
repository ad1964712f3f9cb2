"""Keys: a call of a Triton kernel as what must be equal to reuse a decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from tunewright.backends.host import cpu, digest, source_of
from tunewright.backends.triton import adapter
from tunewright.errors import SignatureError
from tunewright.fronts.buckets import Buckets
from tunewright.fronts.triton.source import digest_of
from tunewright.fronts.triton.telling import Telling
from tunewright.model.device import Device
from tunewright.model.key import Key
from tunewright.model.signature import Bucket, Signature, layout_of


class Keys:
    """How calls of one kernel are told apart: what its author says, and what its code is specialised for."""

    def __init__(self, fn: Any, key: Sequence[str], said: Telling, *, own_clock: bool) -> None:
        self._fn, self._key, self._said, self._own_clock = fn, tuple(key), said, own_clock
        self.buckets = Buckets(said.buckets)
        self.params = adapter.params_of(fn)
        if unknown := [name for name in self.buckets if name not in self._key]:
            raise SignatureError(f"buckets name {', '.join(unknown)}, which is not in key={list(self._key)}; add it")

    @property
    def name(self) -> str:
        """What the kernel is called in the store: no module or path, so that moving a file loses nothing."""
        function = adapter.innermost(self._fn).fn
        return self._said.name or str(function.__qualname__).rpartition("<locals>.")[2]

    def signature(self, named: Mapping[str, Any], bucket: Bucket | None = None) -> Signature:
        """What the arguments look like: whole numbers of `key=` are sizes, all else is as Triton specialises on it."""
        sizes = {name: named[name] for name in self._key if _is_size(named.get(name))}
        told = [self._described(param, named[param.name], sizes) for param in self.params if param.name in named]
        return Signature(tuple(told), {n: bucket(n, size) if bucket else size for n, size in sizes.items()})

    def _described(self, param: adapter.Param, value: Any, sizes: Mapping[str, int]) -> str:
        name = param.name
        if name in sizes:
            return f"{name}: int"
        if name in self._key and adapter.tensor_of(value) is None:
            return f"{name}: {type(value).__name__} {value}"
        return f"{name}: {_text(param, value)}"

    def key(self, signature: Signature) -> Key:
        """The whole key, on the current device."""
        interpreted = adapter.is_interpreted(self._fn)
        mode = adapter.execution_mode(interpreted=interpreted)
        mode["regime"] = "as do_bench times" if self._own_clock else "flushed"
        if self._said.reference is not None:
            mode["check"] = digest(source_of(self._said.reference))[:12]
        device = cpu() if interpreted else self.device()
        return Key(self.name, self.source, signature, device, adapter.toolchain(), mode)

    def device(self) -> Device:
        """The current device."""
        return adapter.device()

    @cached_property
    def source(self) -> str:
        """What the kernel does, as a digest."""
        return digest_of(self._fn)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(param: adapter.Param, value: Any) -> str:
    """An argument by its type, what Triton specialises on, and for a tensor the class of its layout."""
    tensor = adapter.tensor_of(value)
    if tensor is not None and tensor is not value:
        return f"descriptor of {_kind(tensor)} {_layout(tensor)}"  # its block is set by the config's hook
    if tensor is None and isinstance(value, tuple):
        return f"({', '.join(_text(param, part) for part in value)})"
    kind, special = adapter.specialised(param, value)
    said = kind if special == "" else f"{kind} {_WORDS.get(special, special)}"
    return said if tensor is None else f"{said} {_layout(tensor)}"


_WORDS = {"D": "/16"}


def _kind(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _layout(tensor: Any) -> str:
    """The class of a tensor's layout; of a stand-in that has no strides, the plainest."""
    if not hasattr(tensor, "stride") or not hasattr(tensor, "is_contiguous"):
        return "C"
    return "C" if tensor.is_contiguous() else layout_of(tuple(tensor.shape), tuple(tensor.stride()))
