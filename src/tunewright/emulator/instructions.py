"""Loads the modules that define instructions, each of which fills the table in `builders`."""

from __future__ import annotations

from importlib import import_module

MODULES = (
    "integer_ops",
    "float_ops",
    "carry_ops",
    "conversions",
    "compare_ops",
    "memory_ops",
    "async_ops",
    "atomics",
    "warp_ops",
    "matrix_ops",
    "wgmma",
    "wmma",
    "mbarriers",
    "tensor_maps",
)


def load_instructions() -> None:
    """Imports them."""
    for name in MODULES:
        import_module(f"tunewright.emulator.{name}")
