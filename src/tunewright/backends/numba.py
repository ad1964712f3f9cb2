"""The Numba backend: the decorated function, compiled by `numba.njit` with the knobs as constants."""

from __future__ import annotations

from collections.abc import Callable as Function
from collections.abc import Mapping
from types import FunctionType
from typing import Any

from tunewright.backends.compiled import Callable
from tunewright.backends.host import digest, function_digest
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.ports import plugins
from tunewright.ports.backend import Kernel, Launch

JIT_OPTIONS = frozenset({"boundscheck", "error_model", "fastmath", "forceinline", "nogil", "parallel"})

INNER_OPTIONS = frozenset({"cache", "forceinline", "inline", "locals", "parallel"})
"""Options of the kernel that make no sense for the function which calls it."""


class Numba(Callable):
    """Compiles the decorated function with `numba.njit(**options)`.

    Knobs called `parallel`, `fastmath`, `boundscheck`, `error_model`, `nogil` or `forceinline` are options of `njit`;
    others are arguments of the function, and constants to the compiler. With `parallel`, the kernel must be in a file
    that other processes can import: Numba's threads do not survive a fork.

    Example: `tune(Space(Knob("block", [16, 64]), Knob("fastmath", [False, True])), backend=Numba())`
    """

    takes_knobs = True
    own_knobs = JIT_OPTIONS

    def __init__(self, **options: Any) -> None:
        super().__init__(_no_compile, packages=("numba", "llvmlite"))
        self._options = options

    def make(self, kernel: Kernel, config: Mapping[str, Any]) -> Launch:
        """Returns the dispatcher of a config, which compiles when it is first called."""
        options = {**self._options, **{name: value for name, value in config.items() if name in JIT_OPTIONS}}
        njit = _import_numba().njit
        inner = njit(**options)(with_constants(kernel.function, config))
        # Numba takes 10 to 150 us to look up a call that omits arguments; between compiled functions it takes nothing.
        names = ", ".join(parameter.name for parameter in kernel.parameters)
        scope: dict[str, Any] = {"_tunewright_inner": inner}
        exec(f"def {kernel.function.__name__}({names}): return _tunewright_inner({names})", scope)
        outer = {name: value for name, value in options.items() if name not in INNER_OPTIONS}
        launch: Launch = njit(**outer)(scope[kernel.function.__name__])
        return launch

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """Returns a key of the function, the options, the device, and the versions of Numba and LLVM."""
        source = digest(function_digest(kernel.function), *(f"{k}={v!r}" for k, v in sorted(self._options.items())))
        return self._key(kernel, source, signature, mode)


def with_constants(function: Function[..., Any], values: Mapping[str, Any]) -> FunctionType:
    """Returns a function whose last parameters have `values` as defaults, which Numba compiles as constants.

    Keyword-only parameters become ordinary ones, since Numba does not know others.
    """
    assert isinstance(function, FunctionType)
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[:count]
    usual = function.__defaults__ or ()
    defaults = dict(zip(names[code.co_argcount - len(usual) : code.co_argcount], usual, strict=True))
    defaults |= {**(function.__kwdefaults__ or {}), **{n: value for n, value in values.items() if n in names}}
    first = min((i for i, name in enumerate(names) if name in defaults), default=count)
    code = code.replace(co_argcount=count, co_kwonlyargcount=0)
    tail = tuple(defaults[name] for name in names[first:])
    return FunctionType(code, function.__globals__, function.__name__, tail, function.__closure__)


def _no_compile(config: Mapping[str, Any]) -> Launch:
    raise NotImplementedError


def _import_numba() -> Any:
    try:
        import numba  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise plugins.missing("backends", "numba", error) from error
    return numba
