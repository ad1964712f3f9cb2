"""Python kernels: any callable; knobs are its keyword arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tunewright.backends.host import cpu, python_toolchain, source_of
from tunewright.measure.clock import HostTimer
from tunewright.model.key import Key
from tunewright.model.signature import Reading, Signature
from tunewright.ports.backend import Kernel, Launch
from tunewright.spaces.config import Config


class Python:
    """A kernel is a function; without one of its own, the decorated function itself."""

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        self._function = function

    def signature(self, kernel: Kernel) -> Reading:
        """How to tell calls apart."""
        return Reading.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """The function's syntax, this CPU, this Python and numpy."""
        source = source_of(self._function or kernel.function)
        return Key(kernel.name, source, signature, cpu(), python_toolchain(), mode)

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Launch:
        """The function with its knobs set."""
        function = self._function or kernel.function
        return partial(function, **config) if config else function

    def load(self, kernel: Kernel, artifact: Launch) -> Launch:
        """The same."""
        return artifact

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> HostTimer:
        """A call with fixed arguments."""
        return HostTimer(partial(launch, *args), threads)
