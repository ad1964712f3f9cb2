"""Re-exports Triton's own names, so that only the import line changes."""

from __future__ import annotations

from typing import TypeAlias

from tunewright.triton import adapter

Config: TypeAlias = adapter.Config
heuristics = adapter.heuristics

__all__ = ["Config", "heuristics"]
