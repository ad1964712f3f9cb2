"""Loading kernels by name in another process, without running the program that defines them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tunewright.errors import BackendError
from tunewright.pools.numba_cache import temporary_numba_cache

FUNCTION = re.compile(r"(?P<place>\S+\.py|[^\W\d][\w.]*):(?P<name>[^\W\d][\w.]*)")
"""A function as people type it: FILE.py:NAME or module:NAME."""

C_FUNCTION = re.compile(r"(?P<place>\S+\.(?:c|cc|cpp|cxx)):(?P<name>[^\W\d]\w*)")
"""A C function as people type it: FILE.c:NAME."""

MAIN = "__tunewright_main__"
"""The name under which a script is loaded in a worker, so that `if __name__ == "__main__"` does not run."""

_loading: str | None = None
_in_worker = False


class StopLoading(BaseException):
    """Raised at the first call of a tuned kernel in a script being loaded: everything needed is defined by then."""


def is_lookup_only() -> bool:
    """Whether a kernel called here must not tune: it takes what is stored, or the default.

    True inside a worker, and for calls made by the imports of a module that is being loaded. Raises StopLoading at the
    first call in the loaded module itself.
    """
    if _loading is not None:
        frame = sys._getframe()
        while frame.f_back is not None and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        if frame.f_globals.get("__name__") == _loading:
            raise StopLoading
    return _loading is not None or _in_worker


def mark_as_worker() -> None:
    """Marks this process as a worker: from here on its kernels tune nothing."""
    global _in_worker  # noqa: PLW0603 - one flag per process
    _in_worker = True


def load_target(target: str) -> Any:
    """Returns the object at `module:name` or `file:name`; a script is run up to its first call of a tuned kernel."""
    place, _, name = target.rpartition(":")
    value, is_complete = _load(place)
    for part in name.split("."):
        if not hasattr(value, part):
            hint = ' before its first call of a tuned kernel; put calls under `if __name__ == "__main__":`'
            raise BackendError(f"{Path(place).name} defines no {name!r}{'' if is_complete else hint}")
        value = getattr(value, part)
    return value


def _load(place: str) -> tuple[Any, bool]:
    """Returns the module at a path or of a name, and whether it ran to its end."""
    global _loading  # noqa: PLW0603 - one flag per process, set only here
    import importlib.machinery  # noqa: PLC0415 - needed once, in workers and on the command line
    import importlib.util  # noqa: PLC0415

    if Path(place).is_file():
        loader = importlib.machinery.SourceFileLoader(MAIN, place)
        spec = importlib.util.spec_from_file_location(MAIN, place, loader=loader)
    else:
        before, _loading = _loading, ""  # its packages are imported on the way, and may call kernels
        try:
            spec = None if place in sys.modules else importlib.util.find_spec(place)
        finally:
            _loading = before
        if place in sys.modules:
            return sys.modules[place], True
    if spec is None or spec.loader is None:
        raise BackendError(f"there is no module {place!r}")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    before, _loading = _loading, spec.name
    # A worker has a cache of its own, which lasts.
    separate = spec.name == MAIN and not _in_worker
    try:
        with temporary_numba_cache() if separate else nullcontext():
            spec.loader.exec_module(module)
    except StopLoading:
        return module, False
    finally:
        _loading = before
    return module, True


def importable_target(kernel: Any, function: Callable[..., Any]) -> str | None:
    """Returns where another process can load `kernel`, made from `function`; None if it has no name or no file."""
    value: Any = sys.modules.get(function.__module__)
    file, spec = getattr(value, "__file__", None), getattr(value, "__spec__", None)
    for part in function.__qualname__.split("."):
        value = getattr(value, part, None)
    if value is not kernel:
        return None
    if spec is not None and spec.name != MAIN:
        return f"{spec.name}:{function.__qualname__}"
    return f"{Path(file).resolve()}:{function.__qualname__}" if file and Path(file).is_file() else None
