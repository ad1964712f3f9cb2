"""MLIR backend: search over the structure and sizes of transform-dialect schedules."""

from tunewright.mlir.backend import Mlir

__all__ = ["Mlir"]
