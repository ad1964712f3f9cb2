"""Devices: one OpenCL device opened, with a queue that keeps times; and what of it belongs into a key."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from tunewright.backends.host import cpu
from tunewright.errors import BackendError
from tunewright.model.device import Device
from tunewright.ports.plugins import missing

_opened_by: int | None = None
"""The process in which OpenCL was first touched: its threads do not survive a fork."""


def driver() -> Any:
    """The module `pyopencl`, in a process where it can work."""
    global _opened_by  # noqa: PLW0603 - one for each process, set only here
    try:
        import pyopencl  # noqa: PLC0415 - only where OpenCL is used
    except ImportError as error:
        raise missing("backends", "opencl", error) from error
    _opened_by = _opened_by or os.getpid()
    if _opened_by != os.getpid():
        raise BackendError(
            "OpenCL was opened before this process was forked, and cannot be used in it: define the kernel at the top "
            'of a module or script, so that workers find it by name and start afresh, or tune with pool="serial"'
        )
    return pyopencl


@dataclass(frozen=True)
class Opened:
    """A device, or some of its compute units, with a context and a queue in which work is done in order."""

    device: Any
    context: Any
    queue: Any
    is_cpu: bool

    @property
    def most_items(self) -> int:
        """How many work-items a work-group may have."""
        return int(self.device.max_work_group_size)

    def described(self) -> Device:
        """What must be equal for a time to mean the same; of a processor also its model and what it can do."""
        device, host = self.device, cpu()
        limits = {
            "cores": int(device.max_compute_units),
            "local memory": int(device.local_mem_size),
            "work-group": self.most_items,
        }
        return Device(
            kind="opencl",
            model=f"{device.name.strip()} {host.model}" if self.is_cpu else device.name.strip(),
            architecture=device.version.strip(),
            features=host.features if self.is_cpu else tuple(sorted(device.extensions.split())),
            limits=limits | ({k: v for k, v in host.limits.items() if k != "cores"} if self.is_cpu else {}),
        )

    def toolchain(self) -> dict[str, str]:
        """What compiles here: the platform and its driver."""
        return {"opencl": self.device.platform.version.strip(), "driver": self.device.driver_version.strip()}


@cache
def opened(named: str | None, units: int | None) -> Opened:
    """The device whose name or platform contains a word, or the first GPU, or the first there is."""
    cl = driver()
    device = _chosen(cl, named)
    if units is not None and units != device.max_compute_units:
        device = _part(cl, device, units)
    context = cl.Context([device])
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    return Opened(device, context, queue, bool(device.type & cl.device_type.CPU))


def _chosen(cl: Any, named: str | None) -> Any:
    try:
        found = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error:  # the loader says so where no driver is installed
        found = []
    if not found:
        raise BackendError(
            "no OpenCL device found; install your GPU's driver, or for the CPU: pip install pocl-binary-distribution"
        )
    fitting = [one for one in found if named is None or named.lower() in f"{one.platform.name} {one.name}".lower()]
    if not fitting:
        there = ", ".join(f"{one.name.strip()} ({one.platform.name.strip()})" for one in found)
        raise BackendError(f"no OpenCL device is called {named!r}; there are: {there}")
    return next((one for one in fitting if one.type & cl.device_type.GPU), fitting[0])


def _part(cl: Any, device: Any, units: int) -> Any:
    try:
        return device.create_sub_devices([cl.device_partition_property.BY_COUNTS, units])[0]
    except cl.Error as error:
        raise BackendError(
            f"{device.name.strip()} cannot lend {units} of its {device.max_compute_units} compute units; "
            "leave `units` out to use all of them"
        ) from error
