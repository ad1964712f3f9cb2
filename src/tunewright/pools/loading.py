"""Loading: how another process finds a kernel by name, without running the program it stands in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tunewright.errors import BackendError

MAIN = "__tunewright_main__"
"""The name under which a script is loaded in a worker, so that `if __name__ == "__main__"` does not run."""

_loading = False


class StopLoading(BaseException):
    """A script being loaded in a worker reached its first call of a tuned kernel: all we need is defined."""


def stop_if_loading() -> None:
    """Called by a tuned kernel before it tunes; a worker that only loads the script ends the loading here."""
    if _loading:
        raise StopLoading


def find(target: str) -> Any:
    """The object at `module:name` or `file.py:name`; a script is run up to its first call of a tuned kernel."""
    global _loading  # noqa: PLW0603 - one flag per process, set only here
    from importlib import import_module  # noqa: PLC0415 - as in _load_file

    place, _, name = target.rpartition(":")
    _loading = True
    try:
        module: Any = _load_file(Path(place)) if place.endswith(".py") else import_module(place)
    except StopLoading:
        module = sys.modules[MAIN if place.endswith(".py") else place]
    finally:
        _loading = False
    for part in name.split("."):
        if not hasattr(module, part):
            raise BackendError(
                f"{place} defines no {name!r} before its first call of a tuned kernel; "
                'put such calls under `if __name__ == "__main__":`'
            )
        module = getattr(module, part)
    return module


def _load_file(path: Path) -> Any:
    import importlib.util  # noqa: PLC0415 - needed once, in workers and on the command line

    spec = importlib.util.spec_from_file_location(MAIN, path)
    if spec is None or spec.loader is None:
        raise BackendError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MAIN] = module
    spec.loader.exec_module(module)
    return module
