"""GPU architectures and their resources, shared with other backends."""

from tunewright.backends.gpu_targets import TARGETS, TargetSpec, find_target

__all__ = ["TARGETS", "TargetSpec", "find_target"]
