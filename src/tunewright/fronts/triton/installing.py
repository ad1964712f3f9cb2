"""Installing: Triton's own decorator replaced process-wide, so that kernels of others are tuned by us unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tunewright.backends.triton import adapter
from tunewright.fronts.triton.front import autotune


def install() -> None:
    """From here on `@triton.autotune` is ours; kernels that are decorated already stay as they are."""
    adapter.trusted()
    adapter.patch(autotune)


def uninstall() -> None:
    """From here on `@triton.autotune` is Triton's own again."""
    adapter.patch(adapter.stock_autotune())


@contextmanager
def installed() -> Iterator[None]:
    """`@triton.autotune` is ours within."""
    install()
    try:
        yield
    finally:
        uninstall()
