"""The Backend protocol: how one kind of kernel is described, built, loaded and timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tunewright.model.key import Key
from tunewright.model.signature import CallSignature, Parameter, Signature
from tunewright.spaces.config import Config

Launch = Callable[..., Any]
"""A kernel ready to run: call it with the arguments of a call, in order."""


class ArtifactSource(Protocol):
    """Prebuilt artifacts for a process that launches kernels, and a hook that runs before anything is compiled."""

    def toolchains(self, kernel: str) -> Sequence[Mapping[str, str]]:
        """Returns the toolchains that built the stored artifacts of a kernel; they replace the one found here."""
        ...

    def fetch(self, kernel: str, name: str) -> Path | None:
        """Copies the artifact called `name` from the store to the cache and returns its path; None if there is none."""
        ...

    def before_compile(self, kernel: str) -> None:
        """Called before a kernel is compiled; raises if the process must not compile."""
        ...


class Kernel(msgspec.Struct, frozen=True):
    """A kernel to tune: a name that is the same in every process, the declaring function, and its parameters.

    `cache` is a folder for build results. `artifacts` is None in workers that only try configs. `members` are those of
    knobs that are enums, by the name that configs have of them.
    """

    name: str
    function: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    cache: Path
    artifacts: ArtifactSource | None = None
    members: Mapping[str, Mapping[str, Any]] = {}

    def settings(self, config: Config) -> dict[str, Any]:
        """Returns a config as a Python function gets it: members of enums instead of their names."""
        if not self.members:
            return dict(config)
        return {name: self.members.get(name, {}).get(str(value), value) for name, value in config.items()}


class Timer(Protocol):
    """A launch bound to its arguments, timed by the clock that is right for it."""

    clock: str

    def __call__(self, count: int) -> float:
        """Returns the seconds that `count` launches take together."""
        ...

    def flush(self, *, whole: bool) -> None:
        """Evicts the nearest cache level, or all caches if `whole`."""
        ...


class Backend(Protocol):
    """One kind of kernel. An exception from `build` or `load` is a result of the config, not a bug in the program.

    A backend may also have a method `features(kernel, signature)`, which returns `Feature`s of the space: compiler
    resources that are known before a config is built. It may have a method `relocate(kernel, artifact)`, which loads an
    artifact once more at another address: then candidates are timed at several, and luck with one does not win. It may
    have a method `warm_up(artifact, args)`, which calls it once while it is built: then a JIT compiles in time. One
    with a method `workload(kernel, default, timing)` evaluates configs in its own way, as commands do; its method
    `declare(tuned)` checks a declaration and returns the parameters, and its `notes` are those of every decision. One
    with a text `untimed` has no times to choose by, and that is why: calls use what is stored, or the default config.
    """

    def signature(self, kernel: Kernel) -> CallSignature:
        """Returns the expression that distinguishes calls: the first half of a cached launch."""
        ...

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """Returns everything that must be equal for a decision about `kernel` to be reused."""
        ...

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Any:
        """Compiles a config; needs no device and may run in another process than `load`."""
        ...

    def load(self, kernel: Kernel, artifact: Any) -> Launch:
        """Makes an artifact launchable in this process."""
        ...

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> Timer:
        """Binds `launch` to `args` for timing."""
        ...
