"""A toy kernel language: elementwise expressions with a schedule."""

from loops.language import Schedule, compile_program, trace
from loops.tuning import tuned

__all__ = ["Schedule", "compile_program", "trace", "tuned"]
