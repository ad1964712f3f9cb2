"""Replaces Triton's own decorator in this process, so that kernels of libraries are tuned unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tunewright.triton import adapter, releases
from tunewright.triton.decorator import autotune


def install() -> None:
    """Makes `@triton.autotune` ours from here on; kernels that are already decorated stay as they are."""
    releases.require_supported()
    adapter.patch(autotune)


def uninstall() -> None:
    """Makes `@triton.autotune` Triton's own again."""
    adapter.patch(adapter.stock_autotune())


@contextmanager
def installed() -> Iterator[None]:
    """Makes `@triton.autotune` ours within a `with` block."""
    install()
    try:
        yield
    finally:
        uninstall()
