"""NVIDIA's driver by `cuda.bindings`: a card, memory on it, loaded kernels, streams and events.

It has not been run on a GPU yet: its tests run it, and the real `cuda.bindings`, on a driver that emulates one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

from tunewright.backends.grid_launch import GridLaunch
from tunewright.errors import BackendError, DeviceLost, PluginError

LASTING = frozenset(
    "CUDA_ERROR_" + name
    for name in (
        "ILLEGAL_ADDRESS", "ILLEGAL_INSTRUCTION", "MISALIGNED_ADDRESS", "INVALID_ADDRESS_SPACE", "INVALID_PC", "ASSERT",
        "HARDWARE_STACK_ERROR", "LAUNCH_FAILED", "LAUNCH_TIMEOUT", "ECC_UNCORRECTABLE", "CONTEXT_IS_DESTROYED",
    )
)  # fmt: skip
"""Errors after which nothing works in this process any more."""

IN_GRAPH = 1
"""Makes the recording of an event a part of a captured graph (CU_EVENT_RECORD_EXTERNAL)."""

FLUSH_BYTES = 256 << 20
"""Bytes that flush the caches of a card whose L2 size is not known."""


class CudaCard:
    """A GPU of this machine. Its context is made by the first call that needs it."""

    def __init__(self, driver: Any, ordinal: int = 0) -> None:
        self._driver, self._process = driver, os.getpid()
        self._device = self.call("cuDeviceGet", ordinal)
        self.name = self.call("cuDeviceGetName", 128, self._device).split(b"\0")[0].decode()
        self.driver_version = str(self.call("cuDriverGetVersion"))
        self.capability = (self._attribute("COMPUTE_CAPABILITY_MAJOR"), self._attribute("COMPUTE_CAPABILITY_MINOR"))

    @property
    def arch(self) -> str:
        """The target that nvcc compiles for."""
        return "sm_{}{}".format(*self.capability)

    def runs(self, arch: str) -> bool:
        """Whether it runs machine code for a target: of the same major number, and no newer; `sm_90a` exactly."""
        digits = arch.removeprefix("sm_")
        if digits.endswith("a"):
            return digits[:-1] == self.arch.removeprefix("sm_")
        return int(digits[:-1]) == self.capability[0] and int(digits[-1]) <= self.capability[1]

    def call(self, name: str, *args: Any) -> Any:
        """Calls a function of the driver; raises DeviceLost if this process cannot use the card any more."""
        if os.getpid() != self._process:
            raise BackendError(
                "CUDA was started before this process was forked, and does not work in it; declare the kernel in a "
                'file that workers can import, or tune with pool="serial"'
            )
        status, *values = getattr(self._driver, name)(*args)
        if status.name in LASTING:
            raise DeviceLost(
                f"{status.name}: a launch broke the GPU's context, and nothing works on it in this process any more; "
                "start anew, and see with `tunewright cuda check` what the kernel does wrong",
                reason=f"{status.name} ({name})",
            )
        if status.value:
            raise BackendError(f"{name}: {status.name}; see the CUDA driver API for what it means")
        return values[0] if values else None

    def make_current(self) -> None:
        """Makes the context of the card that of this thread."""
        self.call("cuCtxSetCurrent", self._context)

    @cached_property
    def _context(self) -> Any:
        return self.call("cuDevicePrimaryCtxRetain", self._device)

    @cached_property
    def stream(self) -> Any:
        """The stream of all launches."""
        self.make_current()
        return self.call("cuStreamCreate", 0)

    def allow_shared(self, function: Any, size: int) -> None:
        """Allows launches of a function to add so many bytes of shared memory."""
        attribute = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.call("cuFuncSetAttribute", function, attribute, size)

    def begin_capture(self) -> None:
        """Keeps what this thread enqueues from now on for a graph, instead of running it."""
        self.call("cuStreamBeginCapture", self.stream, self._driver.CUstreamCaptureMode(1))

    def flush(self, *, whole: bool) -> None:
        """Flushes L2 by writing twice its size, or an eighth of it."""
        memory = self._flushed
        self.call("cuMemsetD8Async", memory.address, 0, memory.size if whole else memory.size // 16, self.stream)

    @cached_property
    def _flushed(self) -> CudaMemory:
        return CudaMemory(self, 2 * self._attribute("L2_CACHE_SIZE") or FLUSH_BYTES)

    def _attribute(self, name: str) -> int:
        attribute = getattr(self._driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.call("cuDeviceGetAttribute", attribute, self._device))


class CudaMemory:
    """Memory on a card, freed with this object."""

    def __init__(self, card: CudaCard, size: int) -> None:
        self._card, self.size = card, max(1, size)
        self.address = card.call("cuMemAlloc", self.size)

    def upload(self, source: int, size: int) -> None:
        """Copies bytes from an address of the host, after all launches."""
        self._card.call("cuMemcpyHtoD", self.address, source, size)

    def download(self, destination: int, size: int) -> None:
        """Copies bytes to an address of the host, after all launches."""
        self._card.call("cuMemcpyDtoH", destination, self.address, size)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at exit, or after the device was lost
            self._card.call("cuMemFree", self.address)


class CudaFunction:
    """A kernel that is loaded on a card, and the shape of its launches."""

    def __init__(self, card: CudaCard, cubin: bytes, entry: str, shape: GridLaunch) -> None:
        self.card, self.shape = card, shape
        card.make_current()
        self._module = card.call("cuModuleLoadData", cubin)
        self._function = card.call("cuModuleGetFunction", self._module, entry.encode())
        if shape.shared:
            card.allow_shared(self._function, shape.shared)

    def launch(self, values: Sequence[Any]) -> None:
        """Launches the kernel with arguments of ctypes, and does not wait."""
        places = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        card, shape = self.card, self.shape
        card.call(
            "cuLaunchKernel", self._function, *shape.grid, *shape.block, shape.shared, card.stream,
            ctypes.addressof(places), 0,
        )  # fmt: skip

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.card.call("cuModuleUnload", self._module)


class LaunchGraph:
    """Launches between two events, replayed at once, so that the host does not slow them down; freed with this object.

    The events are a part of the graph: the time until the host has enqueued the first launch does not count.
    """

    def __init__(self, card: CudaCard, launch: Callable[[], None], count: int) -> None:
        self._card = card
        self._start, self._end = (card.call("cuEventCreate", 0) for _ in range(2))
        card.begin_capture()
        try:
            card.call("cuEventRecordWithFlags", self._start, card.stream, IN_GRAPH)
            for _ in range(count):
                launch()
            card.call("cuEventRecordWithFlags", self._end, card.stream, IN_GRAPH)
        finally:
            captured = card.call("cuStreamEndCapture", card.stream)
        self._graph = card.call("cuGraphInstantiate", captured, 0)
        card.call("cuGraphDestroy", captured)

    def run(self) -> float:
        """Runs the launches, waits for them, and returns their seconds."""
        card = self._card
        card.call("cuGraphLaunch", self._graph, card.stream)
        card.call("cuEventSynchronize", self._end)
        return float(card.call("cuEventElapsedTime", self._start, self._end)) * 1e-3

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._card.call("cuGraphExecDestroy", self._graph)
            self._card.call("cuEventDestroy", self._start)
            self._card.call("cuEventDestroy", self._end)


@cache
def find_card() -> CudaCard | None:
    """Returns the first GPU that the driver shows; None without `cuda.bindings`, a driver or a GPU."""
    try:
        from cuda.bindings import driver  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    try:
        if driver.cuInit(0)[0].value or not driver.cuDeviceGetCount()[1]:
            return None
    except RuntimeError:  # there is no driver
        return None
    return CudaCard(driver)


def require_card() -> CudaCard:
    """Returns the first GPU; raises PluginError if there is none."""
    if (card := find_card()) is None:
        raise PluginError(
            "no GPU was found; install its driver, and pip install 'tunewright[cuda]', or leave device= out, and calls "
            "are emulated"
        )
    return card
