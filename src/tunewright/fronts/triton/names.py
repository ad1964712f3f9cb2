"""Names that are Triton's own, handed on, so that one import line is all that changes."""

from __future__ import annotations

from tunewright.backends.triton import adapter

Config = adapter.Config
heuristics = adapter.heuristics

__all__ = ["Config", "heuristics"]
