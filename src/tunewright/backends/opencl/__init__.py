"""OpenCL kernels: knobs become build options, work-groups are knobs, events are the clock."""

from tunewright.backends.opencl.backend import On, OpenCL

__all__ = ["On", "OpenCL"]
