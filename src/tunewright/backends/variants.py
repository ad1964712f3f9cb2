"""The backend of kernels with variants: several implementations, each with its own backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunewright.backends.host import digest
from tunewright.backends.python import Python
from tunewright.errors import BackendError
from tunewright.model.key import Key
from tunewright.model.signature import CallSignature, Signature
from tunewright.ports.backend import Backend, Kernel, Launch, Timer
from tunewright.spaces.config import VARIANT, Config


@dataclass(frozen=True)
class VariantArtifact:
    """The artifact of the variant's backend."""

    variant: str
    inner: Any


class _VariantLaunch:
    """A launch with its variant, so that it is timed by the right backend."""

    def __init__(self, variant: str, launch: Launch) -> None:
        self.variant, self.launch = variant, launch

    def __call__(self, *args: Any) -> Any:
        return self.launch(*args)


class Variants:
    """Dispatches to the backend of the config's variant; a plain function is a Python kernel."""

    def __init__(self, implementations: Mapping[str, Any]) -> None:
        self._backends: dict[str, Backend] = {
            name: Python(implementation)
            if callable(implementation) and not hasattr(implementation, "build")
            else implementation
            for name, implementation in implementations.items()
        }

    def relative_to(self, folder: Path) -> None:
        """Passes the folder of the kernel's file to the backends that look for sources."""
        for backend in self._backends.values():
            if hasattr(backend, "relative_to"):
                backend.relative_to(folder)

    def _backend(self, name: Any) -> Backend:
        if name not in self._backends:
            raise BackendError(f"variant {name!r} has no implementation; known: {', '.join(self._backends)}")
        return self._backends[name]

    def signature(self, kernel: Kernel) -> CallSignature:
        """Returns how calls are distinguished."""
        return CallSignature.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """Returns a key of all sources and toolchains, since a choice depends on each of them."""
        keys = {name: backend.key(kernel, signature, mode) for name, backend in sorted(self._backends.items())}
        source = digest(*(f"{name} {key.source}" for name, key in keys.items()))
        toolchain = {part: version for key in keys.values() for part, version in key.toolchain.items()}
        for name, key in keys.items():
            toolchain |= {
                f"{name}.{part}": version for part, version in key.toolchain.items() if toolchain[part] != version
            }
        device = next(iter(keys.values())).device
        return Key(kernel.name, source, signature, device, toolchain, mode)

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> VariantArtifact:
        """Builds with the backend of the variant."""
        variant = str(config[VARIANT])
        knobs = Config({name: value for name, value in config.items() if name != VARIANT})
        return VariantArtifact(variant, self._backend(variant).build(kernel, knobs, signature))

    def load(self, kernel: Kernel, artifact: VariantArtifact) -> Launch:
        """Loads with the backend of the variant."""
        return _VariantLaunch(artifact.variant, self._backend(artifact.variant).load(kernel, artifact.inner))

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> Timer:
        """Returns the timer of the variant's backend."""
        assert isinstance(launch, _VariantLaunch)
        return self._backend(launch.variant).timer(launch.launch, args, threads)
