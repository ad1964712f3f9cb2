"""Opens an OpenCL device with a profiling queue, and describes it for keys."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from tunewright.backends.host import cpu
from tunewright.errors import BackendError
from tunewright.model.device import Device
from tunewright.ports.plugins import missing

_opened_in_process: int | None = None
"""The process that first used OpenCL; its threads do not survive a fork."""


def driver() -> Any:
    """Returns the module `pyopencl`; raises BackendError in a process that was forked after OpenCL was used."""
    global _opened_in_process  # noqa: PLW0603 - one for each process, set only here
    try:
        import pyopencl  # noqa: PLC0415 - only where OpenCL is used
    except ImportError as error:
        raise missing("backends", "opencl", error) from error
    _opened_in_process = _opened_in_process or os.getpid()
    if _opened_in_process != os.getpid():
        raise BackendError(
            "OpenCL cannot be used here: it was opened before this process was forked. Define the kernel at the top "
            'of a module or script, so that workers import it by name, or tune with pool="serial"'
        )
    return pyopencl


@dataclass(frozen=True)
class OpenCLContext:
    """A device, or some of its compute units, with a context and an in-order queue."""

    device: Any
    context: Any
    queue: Any
    is_cpu: bool

    @property
    def max_work_group_size(self) -> int:
        """The maximum of work-items in a work-group."""
        return int(self.device.max_work_group_size)

    def describe(self) -> Device:
        """Returns the device for keys; of a CPU also its model and features."""
        device, host = self.device, cpu()
        limits = {
            "cores": int(device.max_compute_units),
            "local memory": int(device.local_mem_size),
            "work-group": self.max_work_group_size,
        }
        return Device(
            kind="opencl",
            model=f"{device.name.strip()} {host.model}" if self.is_cpu else device.name.strip(),
            architecture=device.version.strip(),
            features=host.features if self.is_cpu else tuple(sorted(device.extensions.split())),
            limits=limits | ({k: v for k, v in host.limits.items() if k != "cores"} if self.is_cpu else {}),
        )

    def toolchain(self) -> dict[str, str]:
        """Returns the versions of the platform and its driver, which compile kernels."""
        return {"opencl": self.device.platform.version.strip(), "driver": self.device.driver_version.strip()}


@cache
def open_device(name: str | None, units: int | None) -> OpenCLContext:
    """Opens the device whose name or platform contains `name`; without one, the first GPU or the first device."""
    cl = driver()
    device = _find_device(cl, name)
    if units is not None and units != device.max_compute_units:
        device = _sub_device(cl, device, units)
    context = cl.Context([device])
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    return OpenCLContext(device, context, queue, bool(device.type & cl.device_type.CPU))


def _find_device(cl: Any, name: str | None) -> Any:
    try:
        devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error:  # the loader raises it if no driver is installed
        devices = []
    if not devices:
        raise BackendError(
            "no OpenCL device found; install your GPU's driver, or for the CPU: pip install pocl-binary-distribution"
        )
    matching = [
        device for device in devices if name is None or name.lower() in f"{device.platform.name} {device.name}".lower()
    ]
    if not matching:
        available = ", ".join(f"{device.name.strip()} ({device.platform.name.strip()})" for device in devices)
        raise BackendError(f"no OpenCL device is called {name!r}; available: {available}")
    return next((device for device in matching if device.type & cl.device_type.GPU), matching[0])


def _sub_device(cl: Any, device: Any, units: int) -> Any:
    try:
        return device.create_sub_devices([cl.device_partition_property.BY_COUNTS, units])[0]
    except cl.Error as error:
        raise BackendError(
            f"{device.name.strip()} cannot be partitioned into {units} of {device.max_compute_units} compute units; "
            "leave `units` out to use all of them"
        ) from error
