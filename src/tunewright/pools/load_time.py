"""How long the program of a kernel takes to load: its statements run again in every worker."""

from __future__ import annotations

import builtins
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tunewright.lazy_logging import LazyLogger

log = LazyLogger(__name__)

SLOW_SECONDS = 1.0
"""Seconds above which it is worth a warning."""

_warned: set[str] = set()


class LoadTime:
    """Seconds that a module's own statements took, without the modules that it imports: a kernel may need those."""

    seconds = 0.0


@contextmanager
def measured_load() -> Iterator[LoadTime]:
    """Measures the block, in which a module is loaded; imports made by its statements do not count."""
    result, imported, depth, original = LoadTime(), 0.0, 0, builtins.__import__

    def timed_import(*args: Any, **options: Any) -> Any:
        nonlocal imported, depth
        began, depth = time.perf_counter(), depth + 1
        try:
            return original(*args, **options)
        finally:
            depth -= 1
            imported += 0.0 if depth else time.perf_counter() - began

    began = time.perf_counter()
    builtins.__import__ = timed_import
    try:
        yield result
    finally:
        builtins.__import__ = original
        result.seconds = time.perf_counter() - began - imported


def warn_of_slow_load(target: str, seconds: float) -> None:
    """Says once what loading the program of a kernel costs in every worker, and how to avoid it."""
    place = target.rpartition(":")[0]
    if seconds < SLOW_SECONDS or place in _warned:
        return
    _warned.add(place)
    remedy = (
        'put what only the program needs under `if __name__ == "__main__":`, or the kernel into a file of its own'
        if place.endswith(".py")
        else "put the kernel into a module of its own, or the slow statements into a function"
    )
    message = "%s takes %.1f s to run up to its first call of a tuned kernel, imports not counted, in every worker: %s"
    log.warning(message, Path(place).name, seconds, remedy)
