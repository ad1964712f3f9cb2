"""Fills Triton's cache with compiled configs from a bundle, and counts what is still compiled."""

from __future__ import annotations

from functools import cache

from tunewright.lazy_logging import LazyLogger
from tunewright.session import Session, current_session
from tunewright.stores.seal import SEAL
from tunewright.triton import adapter
from tunewright.triton.static.artifacts import SUFFIX, install_into_triton_cache

log = LazyLogger(__name__)


def preload_triton_cache(session: Session, kernel: str) -> int:
    """Writes the artifacts of `kernel` for this device into Triton's cache; returns how many."""
    architecture = adapter.device().architecture
    count = install_into_triton_cache(session.artifacts.contents(kernel, SUFFIX, architecture))
    if count:
        log.info("%s: %d compiled configs for %s added to Triton's cache", kernel, count, architecture)
    return count


@cache
def count_compiles() -> None:
    """Counts Triton's compiles from now on; hits in its cache do not count."""
    adapter.on_compile(_on_compile)


def _on_compile(name: str) -> None:
    current_session().counts["compiles"] += 1
    SEAL.check("compiles", f"{name} was compiled")
