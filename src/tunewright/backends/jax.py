"""The JAX backend: the decorated function, compiled by `jax.jit` with the knobs as constants."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tunewright.backends.compiled import Callable
from tunewright.backends.host import digest, function_digest
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.ports import plugins
from tunewright.ports.backend import Kernel, Launch


class Jax(Callable):
    """Compiles the decorated function with `jax.jit(..., **options)`; it returns its result, and writes no argument.

    Knobs are arguments of the function, and constants while it is traced; so are arguments declared as int, bool or
    str. The time of a launch ends when its result is there.

    Example: `tune(Space(Knob("block", [16, 64])), backend=Jax())`
    """

    takes_knobs = True

    def __init__(self, **options: Any) -> None:
        super().__init__(_no_compile, packages=("jax", "jaxlib"))
        self._options = options

    def make(self, kernel: Kernel, config: Mapping[str, Any]) -> Launch:
        """Returns the compiled function of a config, which compiles when it is first called."""
        static = [i for i, parameter in enumerate(kernel.parameters) if parameter.kind in (int, bool, str)]
        options = {"static_argnums": static, **self._options} if static else self._options
        launch: Launch = _import_jax().jit(partial(kernel.function, **config), **options)
        return launch

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """Returns a key of the function, the options, the device, and the version of JAX."""
        source = digest(function_digest(kernel.function), *(f"{k}={v!r}" for k, v in sorted(self._options.items())))
        return self._key(kernel, source, signature, mode)


def _no_compile(config: Mapping[str, Any]) -> Launch:
    raise NotImplementedError


def _import_jax() -> Any:
    try:
        import jax  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise plugins.missing("backends", "jax", error) from error
    return jax
