"""Loading: how another process finds a kernel by name, without running the program it stands in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunewright.errors import BackendError

MAIN = "__tunewright_main__"
"""The name under which a script is loaded in a worker, so that `if __name__ == "__main__"` does not run."""

_loading: str | None = None
_in_worker = False


class StopLoading(BaseException):
    """A script being loaded reached its first call of a tuned kernel: all we need is defined."""


def only_known_answers() -> bool:
    """Asked by a tuned kernel before it decides: whether this is no place to tune.

    A module that is only loaded to find a kernel in it is not run beyond its first call of one; calls that its
    imports make, and calls that a kernel makes inside a worker, take what is stored or the default.
    """
    if _loading is not None:
        frame = sys._getframe()
        while frame.f_back is not None and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        if frame.f_globals.get("__name__") == _loading:
            raise StopLoading
    return _loading is not None or _in_worker


def enter_worker() -> None:
    """From here on this process tries configs for another, and tunes nothing of its own."""
    global _in_worker  # noqa: PLW0603 - one flag per process
    _in_worker = True


def find(target: str) -> Any:
    """The object at `module:name` or `file:name`; a script is run up to its first call of a tuned kernel."""
    place, _, name = target.rpartition(":")
    module, whole = _load(place)
    for part in name.split("."):
        if not hasattr(module, part):
            hint = (
                ""
                if whole
                else ' before its first call of a tuned kernel; put calls under `if __name__ == "__main__":`'
            )
            raise BackendError(f"{Path(place).name} defines no {name!r}{hint}")
        module = getattr(module, part)
    return module


def _load(place: str) -> tuple[Any, bool]:
    """The module at a path or of a name, and whether it ran to its end."""
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
    try:
        spec.loader.exec_module(module)
    except StopLoading:
        return module, False
    finally:
        _loading = before
    return module, True


def target_of(thing: Any, function: Callable[..., Any]) -> str | None:
    """Where another process finds `thing`, made from `function`; None if it has no name, or no file to load again."""
    found: Any = sys.modules.get(function.__module__)
    file, spec = getattr(found, "__file__", None), getattr(found, "__spec__", None)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not thing:
        return None
    if spec is not None and spec.name != MAIN:
        return f"{spec.name}:{function.__qualname__}"
    return f"{Path(file).resolve()}:{function.__qualname__}" if file and Path(file).is_file() else None
