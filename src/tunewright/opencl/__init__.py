"""OpenCL kernels: knobs become build options, work-groups are knobs, events are the clock."""

from typing import Any

from tunewright.opencl.backend import DeviceSelector, OpenCL

__all__ = ["DeviceSelector", "OpenCL"]


def __getattr__(name: str) -> Any:
    if name == "On":
        import warnings  # noqa: PLC0415 - only for the old name

        warnings.warn("tunewright.opencl.On is now DeviceSelector", DeprecationWarning, stacklevel=2)
        return DeviceSelector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
