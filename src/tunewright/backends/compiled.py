"""Compiled callables: a function that returns a callable for a config, whatever compiles it."""

from __future__ import annotations

import collections.abc
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tunewright.backends.foreign_devices import device, library_versions
from tunewright.backends.host import digest, function_digest, python_toolchain
from tunewright.backends.python import Python
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.ports.backend import Kernel, Launch
from tunewright.spaces.config import Config

MAX_COMPILED = 1024
"""Callables that are kept; the oldest go first."""


class Callable(Python):
    """Launches what `compile(config)` returns: a JIT's function, a schedule of a DSL, a closure.

    `config` is a mapping of knobs to values. The callable is called once, with example arguments, while it is built: a
    JIT compiles then, and that time counts as building. It is kept for each config and signature. Its key has the
    source and the closure of `compile` and of the decorated function, and the versions of `packages`.

    Example: `tune(space, backend=Callable(lambda config: make(config["tile"]), packages=["numba"]))`
    """

    takes_knobs = False

    def __init__(
        self,
        compile: collections.abc.Callable[[Mapping[str, Any]], Launch],
        *,
        packages: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._compile, self._packages = compile, tuple(packages)
        self._compiled: dict[tuple[Config, str], Launch] = {}

    def make(self, kernel: Kernel, config: Mapping[str, Any]) -> Launch:
        """Returns the callable of a config, which need not have compiled anything yet."""
        return self._compile(config)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """Returns a key of both functions, the device, Python, and the versions of packages and libraries."""
        source = digest(function_digest(self._compile), function_digest(kernel.function))
        return self._key(kernel, source, signature, mode)

    def _key(self, kernel: Kernel, source: str, signature: Signature, mode: dict[str, str]) -> Key:
        packages = {name: _version(name) for name in self._packages}
        toolchain = {**python_toolchain(), **library_versions(signature), **packages}
        return Key(kernel.name, source, signature, device(signature), toolchain, mode)

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Launch:
        """Returns the callable of a config; the same one for the same config and signature."""
        mark = config, str(signature)
        if mark not in self._compiled:
            while len(self._compiled) >= MAX_COMPILED:
                self._compiled.pop(next(iter(self._compiled)))
            launch = self.make(kernel, kernel.settings(config))
            if not callable(launch):
                raise TypeError(f"compile returned a {type(launch).__name__} for {config}, which cannot be called")
            self._compiled[mark] = launch
        return self._compiled[mark]

    def warm_up(self, artifact: Launch, args: Sequence[Any]) -> None:
        """Calls a callable once, so that it is compiled for such arguments."""
        artifact(*args)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
