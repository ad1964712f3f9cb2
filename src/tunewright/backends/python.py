"""The Python backend: any callable; knobs are its keyword arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tunewright.backends.host import cpu, function_digest, python_toolchain
from tunewright.measure.clock import HostTimer
from tunewright.model.key import Key
from tunewright.model.signature import CallSignature, Signature
from tunewright.ports.backend import Kernel, Launch
from tunewright.spaces.config import Config


class Python:
    """Calls a function; by default the decorated function itself."""

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        self._function = function

    def signature(self, kernel: Kernel) -> CallSignature:
        """Returns how calls are distinguished."""
        return CallSignature.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """Returns a key of the function's syntax, this CPU, Python and numpy."""
        source = function_digest(self._function or kernel.function)
        return Key(kernel.name, source, signature, cpu(), python_toolchain(), mode)

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Launch:
        """Returns the function with its knobs set."""
        function = self._function or kernel.function
        return partial(function, **config) if config else function

    def load(self, kernel: Kernel, artifact: Launch) -> Launch:
        """Returns the artifact, which is the function."""
        return artifact

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> HostTimer:
        """Returns a timer of a call with fixed arguments."""
        return HostTimer(partial(launch, *args), threads)
