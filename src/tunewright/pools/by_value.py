"""Kernels by value: one that no other process can import, such as a notebook's, is sent to fresh workers as bytes.

The only code in the project that travels as data. It goes from a process to a child that it has started itself, over
their private socket, and never the other way.
"""

from __future__ import annotations

import os
import pickle  # noqa: TID251 - see above
from collections.abc import Callable
from typing import Any

from tunewright.lazy_logging import LazyLogger

log = LazyLogger(__name__)


def needs_fresh_workers() -> bool:
    """Whether this process has several threads.

    A fork has the calling thread only: what the others held, such as the thread pool of OpenMP, is broken in it.
    """
    try:
        return len(os.listdir("/proc/self/task")) > 1
    except OSError:
        return True


def dump_kernel(name: str, rebuild: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes | None:
    """Returns what `load_kernel` takes; None, with a warning, if that is not possible, so that workers are forked."""
    risk = f"workers for {name} are forked from a process with several threads, which may break parallel configs"
    try:
        import cloudpickle  # type: ignore[import-untyped] # noqa: PLC0415 - an extra, needed here only
    except ImportError:
        log.warning("%s; pip install tunewright[notebook], or put the kernel into a module", risk)
        return None
    try:
        dumped: bytes = cloudpickle.dumps((rebuild, arguments))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        log.warning("%s, since fresh ones cannot have it: %s; put the kernel into a module", risk, error)
        return None
    return dumped


def load_kernel(dumped: bytes) -> Any:
    """Returns the kernel, in a worker that was started with it."""
    rebuild, arguments = pickle.loads(dumped)  # noqa: S301 - see above
    return rebuild(*arguments)
