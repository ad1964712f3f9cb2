"""Launches: an OpenCL kernel called with numpy arrays, and timed by the device's own events."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

import msgspec
import numpy as np

from tunewright.backends.opencl.device import Opened, driver
from tunewright.backends.opencl.source import Taken
from tunewright.errors import BackendError, SignatureError
from tunewright.measure.clock import EVERYTHING, NEARBY, HostTimer
from tunewright.model.signature import Parameter

EVENTS = "opencl events"

MOST_WAITING = 256
"""Launches that wait in the queue at once: each holds an event."""

FLUSHED = 256 << 20
"""Bytes that empty the caches of any device with memory of its own."""

Sizes = tuple[int, ...]


class Geometry(msgspec.Struct, frozen=True):
    """How many work-groups there are along each axis, and of how many work-items each."""

    groups: Sizes
    local: Sizes

    @property
    def items(self) -> Sizes:
        """How many work-items there are along each axis."""
        return tuple(group * own for group, own in zip(self.groups, self.local, strict=True))


class OpenCLLaunch:
    """A kernel that takes numpy arrays and numbers; it returns when the results are in the arrays.

    Where device and host share memory, arrays are used where they lie; elsewhere they are copied, there and back.
    """

    def __init__(
        self, opened: Opened, function: Any, geometry: Geometry, parameters: Sequence[Parameter],
        arguments: Sequence[Taken], *, shared: bool,
    ) -> None:  # fmt: skip
        self.opened, self.geometry, self._function = opened, geometry, function
        self._shared, self._pid, self._lock = shared, os.getpid(), Lock()
        self._makers = [self._maker(*both) for both in zip(parameters, arguments, strict=True)]
        self._written = [i for i, p in enumerate(parameters) if p.role is None or p.role.writes]
        self._arrays = [argument.is_pointer for argument in arguments]
        self.moves_back = not shared and any(p.role is None or (p.role.reads and p.role.writes) for p in parameters)

    def __call__(self, *args: Any) -> None:
        if self._pid != os.getpid():
            driver()
        given = self.bound(args)
        self.enqueue(given)
        self.collect(args, given)

    def _maker(self, parameter: Parameter, argument: Taken) -> Callable[[Any], Any]:
        """How one argument is handed over."""
        if not argument.is_pointer:
            return argument.dtype.type if argument.dtype is not None else lambda value: value
        cl, context = driver(), self.opened.context
        kept = cl.mem_flags.USE_HOST_PTR if self._shared else cl.mem_flags.COPY_HOST_PTR
        writes = parameter.role is None or parameter.role.writes
        flags, buffer = kept | (cl.mem_flags.READ_WRITE if writes else cl.mem_flags.READ_ONLY), cl.Buffer

        def handed(array: Any) -> Any:
            try:
                return buffer(context, flags, hostbuf=array)
            except (TypeError, ValueError, cl.Error) as error:
                said = "an OpenCL kernel takes numpy arrays without gaps, writable unless they are In"
                raise SignatureError(f"{parameter.name}: {said}: {error}") from error

        return handed

    def bound(self, args: Sequence[Any]) -> list[Any]:
        """The arguments as the device takes them."""
        return [make(arg) for make, arg in zip(self._makers, args, strict=True)]

    def enqueue(self, given: Sequence[Any]) -> Any:
        """Launch; the event by which its times are known."""
        cl, geometry = driver(), self.geometry
        try:
            with self._lock:  # arguments belong to the kernel until it is in the queue
                self._function.set_args(*given)
                return cl.enqueue_nd_range_kernel(self.opened.queue, self._function, geometry.items, geometry.local)
        except cl.Error as error:
            raise BackendError(f"{error}; work-groups of {geometry.local} may be too large for this kernel") from error

    def collect(self, args: Sequence[Any], given: Sequence[Any]) -> None:
        """Wait, and have what was written in the arrays."""
        cl, queue = driver(), self.opened.queue
        for i in self._written:
            if not self._arrays[i]:
                continue
            if self._shared:  # a map is what makes writes visible to the host, though nothing moves
                whole = (0, args[i].shape, args[i].dtype)
                view, _ = cl.enqueue_map_buffer(queue, given[i], cl.map_flags.READ, *whole, is_blocking=False)
                view.base.release(queue)
            else:
                cl.enqueue_copy(queue, args[i], given[i])
        queue.finish()


class EventTimer:
    """Times launches by the device's events, each from its start to its end: no transfers, no waiting in the queue."""

    clock = EVENTS

    def __init__(self, launch: OpenCLLaunch, args: Sequence[Any]) -> None:
        self._launch, self._args = launch, args
        self._given = launch.bound(args)

    def __call__(self, count: int) -> float:
        launch, queue, total = self._launch, self._launch.opened.queue, 0
        if launch.moves_back:  # what the host has put back must get to the device, which takes time that is not counted
            self._given = launch.bound(self._args)
        while count:
            now = min(count, MOST_WAITING)
            events = [launch.enqueue(self._given) for _ in range(now)]
            queue.finish()
            total += sum(event.profile.end - event.profile.start for event in events)
            count -= now
        return total * 1e-9

    def flush(self, *, whole: bool) -> None:
        """Let other work pass through the caches of the device."""
        if self._launch.opened.is_cpu:
            HostTimer(lambda: None, 1).flush(whole=whole)
            return
        cl, queue = driver(), self._launch.opened.queue
        cl.enqueue_fill_buffer(
            queue, self._scratch, np.uint32(1), 0, FLUSHED if whole else FLUSHED * NEARBY // EVERYTHING
        )
        queue.finish()

    @cached_property
    def _scratch(self) -> Any:
        cl = driver()
        return cl.Buffer(self._launch.opened.context, cl.mem_flags.READ_WRITE, FLUSHED)
