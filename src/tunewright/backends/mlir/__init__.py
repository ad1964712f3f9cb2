"""MLIR: schedules as programs, whose structure and numbers are searched together."""

from tunewright.backends.mlir.backend import Mlir

__all__ = ["Mlir"]
