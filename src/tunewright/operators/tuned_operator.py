"""An operator as a tuned kernel whose config selects one of its implementations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tunewright.backends.host import digest
from tunewright.backends.python import Python
from tunewright.backends.variants import VariantArtifact, Variants
from tunewright.errors import TunewrightError
from tunewright.kernel.tuned import Tuned
from tunewright.measure.clock import HostTimer
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.operators.operator import NARROW, Implementation, Template
from tunewright.ports.backend import Kernel, Launch
from tunewright.spaces.config import VARIANT, Config
from tunewright.spaces.space import Space, Variant

SEPARATOR = "/"
"""Separates the name of an implementation from that of its own variant."""


class OperatorKernel(Tuned):
    """A tuned kernel that other processes find by the name of its operator."""

    target_name: str | None = None
    chosen: str = ""

    def launcher(self, args: Sequence[Any]) -> Launch:
        """Returns the launch for such arguments and sets `chosen` to its implementation."""
        return self._prepare(None, tuple(args))

    def decide(self, *args: Any) -> Decision:
        """Decides which implementation is launched."""
        decision = super().decide(*args)
        self.chosen = str(decision.config[VARIANT])
        return decision

    def target(self) -> str | None:
        """Returns where another process finds the operator."""
        return self.target_name


class PreparedImplementation(NamedTuple):
    """An implementation that supports the arguments, with its template for them."""

    implementation: Implementation
    template: Template

    def variants(self) -> list[Variant]:
        """Returns its variants in the space of the operator: one, or one for each of its own."""
        name, space = self.implementation.name, self.template.space
        if space is None:
            return [Variant(name)]
        if not space.variants:
            return [Variant(name, *space.knobs, rules=space.rules)]
        return [
            Variant(f"{name}{SEPARATOR}{own.name}", *space.knobs, *own.knobs, rules=(*space.rules, *own.rules))
            for own in space.variants
        ]

    def starts(self) -> list[dict[str, Any]]:
        """Returns the configs to try first, one for each variant."""
        name, space, start = self.implementation.name, self.template.space, self.template.start
        if space is None or start or not space.variants:
            return [{VARIANT: name, **(start or (space.first if space else {}))}]
        firsts = [Space(*space.knobs, rules=space.rules, variants=[own]).first for own in space.variants]
        return [{**first, VARIANT: f"{name}{SEPARATOR}{first[VARIANT]}"} for first in firsts]


class FunctionBackend(Python):
    """Backend of an implementation that is a plain function; its versions are part of the key."""

    def __init__(self, implementation: Implementation, signature: Signature) -> None:
        narrow = implementation.narrow is not None and any(text.startswith(NARROW) for text in signature.args)
        super().__init__(implementation.narrow if narrow else implementation.run)
        self._versions = dict(implementation.versions)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """Returns the key of a Python kernel with the versions added."""
        key = super().key(kernel, signature, mode)
        return Key(key.kernel, key.source, signature, key.device, key.toolchain | self._versions, mode)


class ImplementationBackend(Variants):
    """Selects the backend by the config's variant. All are timed as calls with the host's clock, launch overhead
    included: otherwise functions and launched kernels could not be compared.
    """

    def __init__(self, prepared: Sequence[PreparedImplementation]) -> None:
        super().__init__({item.implementation.name: item.template.backend for item in prepared})
        self._alignments = {item.implementation.name: item.implementation.support.alignment for item in prepared}

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """Returns a key with the sources, toolchains and devices of all backends."""
        key = super().key(kernel, signature, mode)
        devices = {name: backend.key(kernel, signature, mode).device for name, backend in self._backends.items()}
        extra = {
            f"{name}.device": f"{device} {digest(repr(device))[:8]}"
            for name, device in devices.items()
            if device != key.device
        }
        return Key(key.kernel, key.source, signature, key.device, key.toolchain | extra, mode)

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Any:
        """Builds with the selected backend; passes on a variant of its own."""
        name, _, own = str(config[VARIANT]).partition(SEPARATOR)
        if not own:
            return super().build(kernel, config, signature)
        inner = Config({**config, VARIANT: own})
        return VariantArtifact(name, self._backend(name).build(kernel, inner, signature))

    def load(self, kernel: Kernel, artifact: Any) -> Launch:
        """Loads with the selected backend."""
        launch = self._backend(artifact.variant).load(kernel, artifact.inner)
        alignment = self._alignments[artifact.variant]
        return launch if alignment <= 1 else partial(_launch_aligned, launch, alignment)

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> HostTimer:
        """Returns a host timer of calls, the same for all implementations."""
        return HostTimer(partial(launch, *args), threads)


def _launch_aligned(launch: Launch, alignment: int, *args: Any) -> Any:
    """Launch on arrays aligned to `alignment` bytes; the last is the result."""
    aligned = [_align(arg, alignment) for arg in args]
    returned = launch(*aligned)
    if aligned[-1] is not args[-1]:
        np.copyto(args[-1], aligned[-1])
    return returned


def _align(array: Any, alignment: int) -> Any:
    if not isinstance(array, np.ndarray) or array.ctypes.data % alignment == 0:
        return array
    memory = np.empty(array.nbytes + alignment, np.uint8)
    start = -memory.ctypes.data % alignment
    aligned = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    aligned[...] = array
    return aligned


def prepare_implementations(
    implementations: Sequence[Implementation], signature: Signature, threads: int
) -> tuple[list[PreparedImplementation], dict[str, str]]:
    """Returns the implementations that support such arguments, and why the others do not."""
    prepared, rejected = [], {}
    for item in implementations:
        if reasons := item.support.unsupported(signature):
            rejected[item.name] = "; ".join(reasons)
            continue
        try:
            template = (
                item.template(signature, threads) if item.template else Template(FunctionBackend(item, signature))
            )
        except TunewrightError as error:  # no config of it fits the sizes
            rejected[item.name] = str(error)
            continue
        prepared.append(PreparedImplementation(item, template))
    return prepared, rejected
