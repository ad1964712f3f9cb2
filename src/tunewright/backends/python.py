"""The Python backend: any callable; knobs are its keyword arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tunewright.backends.foreign_devices import device, library_versions, timer_for
from tunewright.backends.host import function_digest, python_toolchain
from tunewright.model.key import Key
from tunewright.model.signature import CallSignature, Signature
from tunewright.ports.backend import Kernel, Launch, Timer
from tunewright.spaces.config import Config


class Python:
    """Calls a function; by default the decorated function itself.

    Arguments are numpy arrays, or arrays of torch, JAX, CuPy and other libraries with DLPack.
    """

    takes_knobs = True
    """Whether the decorated function takes knobs by name."""
    own_knobs: frozenset[str] = frozenset()
    """Knobs that it need not take all the same."""
    compiles_at_launch = True
    """Whether a first launch may contain a compilation, such as that of a function with `@njit`."""

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        self._function = function

    def signature(self, kernel: Kernel) -> CallSignature:
        """Returns how calls are distinguished."""
        return CallSignature.of(kernel.parameters, foreign=True)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """Returns a key of the function's syntax, the device, Python, numpy and the libraries of the arguments."""
        source = function_digest(self._function or kernel.function)
        toolchain = {**python_toolchain(), **library_versions(signature)}
        return Key(kernel.name, source, signature, device(signature), toolchain, mode)

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Launch:
        """Returns the function with its knobs set."""
        function = self._function or kernel.function
        return partial(function, **kernel.settings(config)) if config else function

    def load(self, kernel: Kernel, artifact: Launch) -> Launch:
        """Returns the artifact, which is the function."""
        return artifact

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> Timer:
        """Returns a timer of a call with fixed arguments."""
        return timer_for(partial(launch, *args), args, threads)
