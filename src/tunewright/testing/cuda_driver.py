"""A driver library without a GPU: the real `cuda.bindings` calls it, and the emulator executes its launches (rung 2).

Memory, modules, launches, graphs and events behave as documented; times are made up. It stays loaded until the process
ends, so use it in a process of its own:

    driver = install_driver(cache, seconds=lambda launch: 1e-4 * launch.block[0])
    kernel.tune(x, y)
    assert driver.launches
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_ulonglong, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tunewright.cuda.backend import Cuda
from tunewright.cuda.nvcc import CudaBuild
from tunewright.emulator import GridLaunch, emulate
from tunewright.emulator.launch import EVERYTHING
from tunewright.emulator.ptx_text import Module, parse_module
from tunewright.errors import TunewrightError

HOST_SECONDS = 5e-6
"""What a launch costs the host, unless it is in a graph."""

SUCCESS, INVALID_VALUE, NO_BINARY, LOST = 0, 1, 209, 700
NAME = b"Emulated GPU"
MAJOR, MINOR, L2_SIZE = 75, 76, 38
"""Numbers of the attributes that are read."""

SOURCE = r"""
#include <stdint.h>
#include <string.h>
static struct { char name[64]; void *function; } known[128];
static int count;
void set_function(const char *name, void *function) {
    strncpy(known[count].name, name, 63);
    known[count++].function = function;
}
int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
    *found = strcmp(name, "cuGetProcAddress") ? 0 : (void *)cuGetProcAddress_v2;
    for (int i = 0; i < count; i++)
        if (!strcmp(known[i].name, name)) *found = known[i].function;
    if (status) *status = !*found;
    return *found ? 0 : 500;
}
"""


class FakeLaunch(NamedTuple):
    """A launch: the name of the kernel, its grid, block and added shared memory."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int


Seconds = Callable[[FakeLaunch], float]
"""Says how long a launch takes."""


class CudaDriver:
    """The state behind the library; functions return the status that NVIDIA's would."""

    def __init__(self, builds: Path, seconds: Seconds, capability: tuple[int, int] = (8, 0)) -> None:
        self._builds, self._seconds, self._capability = builds, seconds, capability
        self.launches: list[FakeLaunch] = []
        self.now, self.lost, self._last = 0.0, False, 0x1000
        self._objects: dict[int, Any] = {}
        self._memory: dict[int, np.ndarray[Any, np.dtype[np.uint8]]] = {}
        self._captured: list[Callable[[], None]] | None = None
        self.history: list[str] = []

    @property
    def live(self) -> int:
        """How many handles are in use."""
        return len(self._objects)

    def _add(self, value: Any) -> int:
        self._last += 1
        self._objects[self._last] = value
        return self._last

    def destroy(self, handle: int) -> None:
        """Ends the use of a handle."""
        del self._objects[handle]

    def instantiate(self, graph: int, flags: int) -> int:
        """Returns an executable copy of a graph."""
        return self._add(list(self._objects[graph]))

    def device_name(self, name: int, size: int, device: int) -> None:
        """Copies the name of the card."""
        ctypes.memmove(name, NAME + b"\0", len(NAME) + 1)

    def attribute(self, number: int, device: int) -> int:
        """Returns an attribute of the card; 0 for those that are not modeled."""
        return {MAJOR: self._capability[0], MINOR: self._capability[1], L2_SIZE: 1 << 20}.get(number, 0)

    def load_module(self, image: int) -> int:
        """Finds the build that has this machine code among those that were kept."""
        for path in self._builds.rglob("*.cuda"):
            build = Cuda.read(path)
            if ctypes.string_at(image, min(len(build.cubin), _elf_size(image))) == build.cubin:
                return self._add((build, parse_module(build.ptx)))
        raise StatusError(NO_BINARY)

    def function(self, module: int, name: bytes) -> int:
        """Returns a kernel of a module."""
        build, parsed = self._objects[module]
        if build.entry != name.decode():
            raise StatusError(INVALID_VALUE)
        return self._add((build, parsed))

    def allocate(self, size: int) -> int:
        """Returns the address of new memory."""
        memory = np.full(size, 0xA5, np.uint8)
        self._memory[memory.ctypes.data] = memory
        return int(memory.ctypes.data)

    def free(self, address: int) -> None:
        """Frees memory."""
        del self._memory[address]

    def copy(self, to: int, source: int, size: int) -> None:
        """Copies between the host and the card, which are one memory."""
        self.synchronize()
        self.history.append("copy")
        ctypes.memmove(to, source, size)

    def fill(self, address: int, value: int, size: int, stream: int) -> None:
        """Fills memory."""
        self.history.append("fill")
        ctypes.memset(address, value, size)

    def synchronize(self, *_: int) -> None:
        """Reports what went wrong in launches before."""
        if self.lost:
            raise StatusError(LOST)

    def begin_capture(self, stream: int, mode: int) -> None:
        """Keeps the next launches instead of executing them."""
        self._captured = []

    def end_capture(self, stream: int) -> int:
        """Returns what was kept."""
        captured, self._captured = self._captured, None
        return self._add(captured)

    def launch_graph(self, graph: int, stream: int) -> None:
        """Executes all launches of a graph, and notes the times of its events."""
        for step in self._objects[graph]:
            step()

    def record(self, event: int, stream: int, flags: int) -> None:
        """Notes the time, now or in a graph."""

        def note() -> None:
            self._objects[event] = self.now

        if self._captured is None:
            note()
        else:
            self._captured.append(note)

    def elapsed(self, start: int, end: int) -> float:
        """Returns the milliseconds between two events."""
        return float(1e3 * (self._objects[end] - self._objects[start]))

    def launch(self, function: int, *rest: Any) -> None:
        """Executes a launch, or keeps it while a graph is captured. Arguments are read now."""
        sizes, (shared, _stream, places, _extra) = [int(size) for size in rest[:6]], rest[6:]
        build, module = self._objects[function]
        launch = FakeLaunch(build.entry, (*sizes[:3],), (*sizes[3:],), int(shared))  # type: ignore[arg-type]
        values = _read_arguments(module, build, places)

        def execute() -> None:
            self._execute(module, launch, values)

        if self._captured is None:
            self.now += HOST_SECONDS
            execute()
        else:
            self._captured.append(execute)

    def _execute(self, module: Module, launch: FakeLaunch, values: list[int | float]) -> None:
        self.launches.append(launch)
        self.history.append("launch")
        self.now += self._seconds(launch)
        args = [self._memory.get(value, value) if isinstance(value, int) else value for value in values]
        shape = GridLaunch(launch.grid, launch.block, launch.shared)
        try:
            done = emulate(module, shape, args, EVERYTHING, launch.entry)
        except TunewrightError:
            self.lost = True
            return
        self.lost = self.lost or bool(done.faults)
        for memory, left in zip(args, done.arrays, strict=False):
            if isinstance(memory, np.ndarray) and left is not None:
                memory[:] = left


class StatusError(Exception):
    """A status that is not success."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


def install_driver(
    builds: Path, *, seconds: Seconds = lambda launch: 1e-3, capability: tuple[int, int] = (8, 0)
) -> CudaDriver:
    """Loads a driver for this process; `builds` is the cache in which compiled kernels are kept. Needs a C compiler."""
    driver = CudaDriver(builds, seconds, capability)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "driver.c"), Path(folder, "libcuda.so.1")
        source.write_text(SOURCE)
        flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
        subprocess.run(["cc", *flags, str(source), "-o", str(library)], check=True)
        loaded = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    for name, function in _functions(driver).items():
        loaded.set_function(name.encode(), ctypes.cast(function, c_void_p))
        _KEPT.append(function)
    _KEPT.append(loaded)
    return driver


_KEPT: list[Any] = []
"""What C code points to."""


def _functions(driver: CudaDriver) -> dict[str, Any]:
    """Returns the functions of the library by name. The first argument of a `getter` is where its result is written."""
    getter, plain, handle = _getter, _plain, c_void_p
    new = driver._add
    return {
        "cuInit": plain(lambda flags: None, c_uint),
        "cuDriverGetVersion": getter(lambda: 13000, c_int),
        "cuDeviceGetCount": getter(lambda: 1, c_int),
        "cuDeviceGet": getter(lambda ordinal: ordinal, c_int, c_int),
        "cuDeviceGetName": plain(driver.device_name, handle, c_int, c_int),
        "cuDeviceGetAttribute": getter(driver.attribute, c_int, c_int, c_int),
        "cuDevicePrimaryCtxRetain": getter(lambda device: 1, c_uint64, c_int),
        "cuCtxSetCurrent": plain(lambda context: None, handle),
        "cuModuleLoadData": getter(driver.load_module, c_uint64, handle),
        "cuModuleUnload": plain(lambda module: None, handle),
        "cuModuleGetFunction": getter(driver.function, c_uint64, handle, c_char_p),
        "cuFuncSetAttribute": plain(lambda function, attribute, value: None, handle, c_int, c_int),
        "cuMemAlloc": getter(driver.allocate, c_uint64, c_size_t),
        "cuMemFree": plain(driver.free, c_uint64),
        "cuMemcpyHtoD": plain(driver.copy, c_uint64, handle, c_size_t),
        "cuMemcpyDtoH": plain(driver.copy, handle, c_uint64, c_size_t),
        "cuMemsetD8Async": plain(driver.fill, c_uint64, c_ubyte, c_size_t, handle),
        "cuStreamCreate": getter(lambda flags: new(None), c_uint64, c_uint),
        "cuStreamSynchronize": plain(driver.synchronize, handle),
        "cuStreamBeginCapture": plain(driver.begin_capture, handle, c_int),
        "cuStreamEndCapture": plain(
            lambda stream, to: _write(to, driver.end_capture(stream)), handle, POINTER(c_uint64)
        ),
        "cuGraphInstantiate": getter(driver.instantiate, c_uint64, handle, c_ulonglong),
        "cuGraphInstantiateWithFlags": getter(driver.instantiate, c_uint64, handle, c_ulonglong),
        "cuGraphDestroy": plain(driver.destroy, handle),
        "cuGraphExecDestroy": plain(driver.destroy, handle),
        "cuGraphLaunch": plain(driver.launch_graph, handle, handle),
        "cuEventCreate": getter(lambda flags: new(0.0), c_uint64, c_uint),
        "cuEventRecordWithFlags": plain(driver.record, handle, handle, c_uint),
        "cuEventDestroy": plain(driver.destroy, handle),
        "cuEventSynchronize": plain(driver.synchronize, handle),
        "cuEventElapsedTime": getter(driver.elapsed, c_float, handle, handle),
        "cuLaunchKernel": plain(driver.launch, handle, *[c_uint] * 7, handle, handle, handle),
    }


def _plain(function: Callable[..., Any], *kinds: Any) -> Any:
    """Returns a function of C that returns a status."""

    def call(*args: Any) -> int:
        try:
            function(*args)
        except StatusError as error:
            return error.status
        return SUCCESS

    return ctypes.CFUNCTYPE(c_int, *kinds)(call)


def _getter(function: Callable[..., Any], result: Any, *kinds: Any) -> Any:
    """Returns a function of C that writes its result to where its first argument points."""
    return _plain(lambda to, *args: _write(to, function(*args)), POINTER(result), *kinds)


def _write(to: Any, value: Any) -> None:
    to[0] = value


def _elf_size(address: int) -> int:
    """Returns the bytes of machine code at an address: its tables of segments and sections come last."""
    head = ctypes.string_at(address, 64)
    tables = [int.from_bytes(head[at : at + 8], "little") for at in (32, 40)]
    sizes = [int.from_bytes(head[at : at + 2], "little") for at in (54, 56, 58, 60)]
    return max(tables[0] + sizes[0] * sizes[1], tables[1] + sizes[2] * sizes[3])


def _read_arguments(module: Module, build: CudaBuild, places: int) -> list[int | float]:
    """Returns the values of a launch's arguments, by their types in the PTX."""
    values: list[int | float] = []
    for number, parameter in enumerate(module.kernel(build.entry).parameters):
        address = c_void_p.from_address(places + 8 * number).value or 0
        code = {"f": "f", "s": "i"}.get(parameter.type[0], "u")
        kind = np.dtype(f"{code}{parameter.size}")
        values.append(np.frombuffer(ctypes.string_at(address, parameter.size), kind)[0].item())
    return values
