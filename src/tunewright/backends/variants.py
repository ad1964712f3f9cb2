"""Variants: one kernel, several implementations, each with a backend of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunewright.backends.host import digest
from tunewright.backends.python import Python
from tunewright.errors import BackendError
from tunewright.model.key import Key
from tunewright.model.signature import Reading, Signature
from tunewright.ports.backend import Backend, Kernel, Launch, Timer
from tunewright.spaces.config import VARIANT, Config


@dataclass(frozen=True)
class VariantArtifact:
    """What the backend of a variant built."""

    variant: str
    inner: Any


class _VariantLaunch:
    """A launch that remembers whose it is, so that it can be timed the right way."""

    def __init__(self, variant: str, launch: Launch) -> None:
        self.variant, self.launch = variant, launch

    def __call__(self, *args: Any) -> Any:
        return self.launch(*args)


class Variants:
    """Chooses the backend by the config's variant; a plain function stands for a Python kernel."""

    def __init__(self, implementations: Mapping[str, Any]) -> None:
        self._backends: dict[str, Backend] = {
            name: Python(one) if callable(one) and not hasattr(one, "build") else one
            for name, one in implementations.items()
        }

    def relative_to(self, folder: Path) -> None:
        """Hand the folder of the kernel's file to the backends that look for sources."""
        for backend in self._backends.values():
            if hasattr(backend, "relative_to"):
                backend.relative_to(folder)

    def _of(self, name: Any) -> Backend:
        if name not in self._backends:
            raise BackendError(f"no implementation of variant {name!r}; there are: {', '.join(self._backends)}")
        return self._backends[name]

    def signature(self, kernel: Kernel) -> Reading:
        """How to tell calls apart."""
        return Reading.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """All sources and toolchains together: a choice among implementations rests on each of them."""
        keys = {name: backend.key(kernel, signature, mode) for name, backend in sorted(self._backends.items())}
        source = digest(*(f"{name} {key.source}" for name, key in keys.items()))
        toolchain = {part: said for key in keys.values() for part, said in key.toolchain.items()}
        for name, key in keys.items():
            toolchain |= {f"{name}.{part}": said for part, said in key.toolchain.items() if toolchain[part] != said}
        device = next(iter(keys.values())).device
        return Key(kernel.name, source, signature, device, toolchain, mode)

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> VariantArtifact:
        """What the chosen backend builds."""
        variant = str(config[VARIANT])
        knobs = Config({name: value for name, value in config.items() if name != VARIANT})
        return VariantArtifact(variant, self._of(variant).build(kernel, knobs, signature))

    def load(self, kernel: Kernel, artifact: VariantArtifact) -> Launch:
        """What the chosen backend loads."""
        return _VariantLaunch(artifact.variant, self._of(artifact.variant).load(kernel, artifact.inner))

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> Timer:
        """As the chosen backend times."""
        assert isinstance(launch, _VariantLaunch)
        return self._of(launch.variant).timer(launch.launch, args, threads)
