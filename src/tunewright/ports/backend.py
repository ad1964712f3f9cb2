"""Backend: how one kind of kernel is described, built, loaded and timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tunewright.model.key import Key
from tunewright.model.signature import Parameter, Reading, Signature
from tunewright.spaces.config import Config

Launch = Callable[..., Any]
"""A kernel ready to run: call it with the arguments of a call, in order."""


class Supply(Protocol):
    """What a process that launches lends its backends: builds that its store brings, and a say before they compile."""

    def toolchains(self, kernel: str) -> Sequence[Mapping[str, str]]:
        """What built what is brought for a kernel: where that is launched, what is found here does not matter."""
        ...

    def brought(self, kernel: str, name: str) -> Path | None:
        """The artefact of a kernel called `name`, put into the cache, if the store brings it."""
        ...

    def compiling(self, kernel: str) -> None:
        """Said before a kernel is compiled; may refuse."""
        ...


class Kernel(msgspec.Struct, frozen=True):
    """What is tuned: a name that is the same in every process, the function that declares it, and its arguments.

    `cache` is a folder where a backend may keep what it builds. Who only tries configs has no `supply`.
    """

    name: str
    function: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    cache: Path
    supply: Supply | None = None


class Timer(Protocol):
    """A launch bound to its arguments, and a clock that is honest for it."""

    clock: str

    def __call__(self, count: int) -> float:
        """Seconds that `count` launches take together."""
        ...

    def flush(self, *, whole: bool) -> None:
        """Let other work pass through the caches that the launches use, or empty the `whole` of them."""
        ...


class Backend(Protocol):
    """One kind of kernel. Whatever `build` and `load` raise is a fact about the config, not a broken program.

    It may also have a method `figures(kernel, signature)`: what the compiler's resources are known to be before a
    config is built, as `Figure`s for the space.
    """

    def signature(self, kernel: Kernel) -> Reading:
        """How to tell calls apart: the first half of a cached launch."""
        ...

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """What must be equal for a decision about `kernel` to be reused."""
        ...

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Any:
        """Compile; needs no device, and may happen in another process than `load`."""
        ...

    def load(self, kernel: Kernel, artifact: Any) -> Launch:
        """Make an artefact launchable here."""
        ...

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> Timer:
        """Bind `launch` to `args`, to be timed."""
        ...
