"""Launches OpenCL kernels with numpy arrays, and times them by device events."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

import msgspec
import numpy as np

from tunewright.errors import BackendError, SignatureError
from tunewright.measure.clock import ALL_CACHES_BYTES, CORE_CACHE_BYTES, HostTimer
from tunewright.model.signature import Parameter
from tunewright.opencl.device import OpenCLContext, driver
from tunewright.opencl.source import KernelArgument

EVENTS = "opencl events"

MAX_QUEUED = 256
"""The maximum of queued launches; each holds an event."""

FLUSH_BYTES = 256 << 20
"""Bytes that flush the caches of any device with its own memory."""

Sizes = tuple[int, ...]


class Geometry(msgspec.Struct, frozen=True):
    """Work-groups along each axis, and work-items in each."""

    groups: Sizes
    local: Sizes

    @property
    def items(self) -> Sizes:
        """Work-items along each axis."""
        return tuple(group * own for group, own in zip(self.groups, self.local, strict=True))


class OpenCLLaunch:
    """A kernel that takes numpy arrays and numbers, and returns when the results are in the arrays.

    If device and host share memory, arrays are used in place; otherwise they are copied to the device and back.
    """

    def __init__(
        self, context: OpenCLContext, function: Any, geometry: Geometry, parameters: Sequence[Parameter],
        arguments: Sequence[KernelArgument], *, shared: bool,
    ) -> None:  # fmt: skip
        self.context, self.geometry, self._function = context, geometry, function
        self._shares_memory, self._pid, self._lock = shared, os.getpid(), Lock()
        self._converters = [self._converter(*pair) for pair in zip(parameters, arguments, strict=True)]
        self._written_indices = [i for i, p in enumerate(parameters) if p.role is None or p.role.writes]
        self._is_array = [argument.is_pointer for argument in arguments]
        self.moves_arrays = not shared

    def __call__(self, *args: Any) -> None:
        if self._pid != os.getpid():
            driver()
        buffers = self.bind(args)
        self.enqueue(buffers)
        self.collect(args, buffers)

    def _converter(self, parameter: Parameter, argument: KernelArgument) -> Callable[[Any], Any]:
        """Returns the conversion of one argument."""
        if not argument.is_pointer:
            return argument.dtype.type if argument.dtype is not None else lambda value: value
        cl, context = driver(), self.context.context
        host_pointer_flag = cl.mem_flags.USE_HOST_PTR if self._shares_memory else cl.mem_flags.COPY_HOST_PTR
        writes = parameter.role is None or parameter.role.writes
        flags, buffer = host_pointer_flag | (cl.mem_flags.READ_WRITE if writes else cl.mem_flags.READ_ONLY), cl.Buffer

        def to_buffer(array: Any) -> Any:
            try:
                return buffer(context, flags, hostbuf=array)
            except (TypeError, ValueError, cl.Error) as error:
                hint = "an OpenCL kernel takes contiguous numpy arrays, writable unless they are In"
                raise SignatureError(f"{parameter.name}: {hint}: {error}") from error

        return to_buffer

    def bind(self, args: Sequence[Any]) -> list[Any]:
        """Returns the arguments as buffers and scalars of the device."""
        return [convert(arg) for convert, arg in zip(self._converters, args, strict=True)]

    def enqueue(self, buffers: Sequence[Any]) -> Any:
        """Launches, and returns the event with its times."""
        cl, geometry = driver(), self.geometry
        try:
            with self._lock:  # arguments belong to the kernel until it is in the queue
                self._function.set_args(*buffers)
                return cl.enqueue_nd_range_kernel(self.context.queue, self._function, geometry.items, geometry.local)
        except cl.Error as error:
            raise BackendError(f"{error}; work-groups of {geometry.local} may be too large for this kernel") from error

    def collect(self, args: Sequence[Any], buffers: Sequence[Any]) -> None:
        """Waits, and copies what was written to the arrays."""
        cl, queue = driver(), self.context.queue
        for i in self._written_indices:
            if not self._is_array[i]:
                continue
            if self._shares_memory:  # a map makes writes visible to the host, though nothing is copied
                region = (0, args[i].shape, args[i].dtype)
                view, _ = cl.enqueue_map_buffer(queue, buffers[i], cl.map_flags.READ, *region, is_blocking=False)
                view.base.release(queue)
            else:
                cl.enqueue_copy(queue, args[i], buffers[i])
        queue.finish()


class EventTimer:
    """Times launches by device events from start to end, without transfers and time in the queue."""

    clock = EVENTS

    def __init__(self, launch: OpenCLLaunch, args: Sequence[Any]) -> None:
        self._launch, self._args = launch, args
        self._buffers = launch.bind(args)

    def __call__(self, count: int) -> float:
        launch, queue, total = self._launch, self._launch.context.queue, 0
        if launch.moves_arrays:  # to the device, which is not timed: they may have changed
            self._buffers = launch.bind(self._args)
        while count:
            batch = min(count, MAX_QUEUED)
            events = [launch.enqueue(self._buffers) for _ in range(batch)]
            queue.finish()
            total += sum(event.profile.end - event.profile.start for event in events)
            count -= batch
        if launch.moves_arrays:
            launch.collect(self._args, self._buffers)
        return total * 1e-9

    def flush(self, *, whole: bool) -> None:
        """Flushes the caches of the device."""
        if self._launch.context.is_cpu:
            HostTimer(lambda: None, 1).flush(whole=whole)
            return
        cl, queue = driver(), self._launch.context.queue
        cl.enqueue_fill_buffer(
            queue,
            self._scratch,
            np.uint32(1),
            0,
            FLUSH_BYTES if whole else FLUSH_BYTES * CORE_CACHE_BYTES // ALL_CACHES_BYTES,
        )
        queue.finish()

    @cached_property
    def _scratch(self) -> Any:
        cl = driver()
        return cl.Buffer(self._launch.context.context, cl.mem_flags.READ_WRITE, FLUSH_BYTES)
