"""A fake GPU for Triton: its real JIT, compiler and autotuner run on a machine without one (rung 2).

Specialization, machine code, resource checks and disk caches are real. Launches are only recorded, and times are made
up: they test what an autotuner does, and say nothing about speed.

    with fake_driver(FakeDriver(A100, seconds=lambda launch: 1e-3 / launch.config["BLOCK"])) as driver:
        kernel[(64,)](x, y, n)
        assert driver.launches[-1].config["BLOCK"] == 1024
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import isnan, nan
from typing import Any, NamedTuple
from zlib import crc32

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.compiler.compiler import max_shared_mem
from triton.runtime.driver import driver as driver_holder


class Card(NamedTuple):
    """The properties of a fake GPU, as a driver reports them."""

    name: str
    arch: int | str
    shared_memory: int
    processors: int
    registers: int = 65_536
    warp: int = 32
    bus: int = 5120

    @property
    def target(self) -> GPUTarget:
        """The target of the compiler."""
        return GPUTarget("hip" if isinstance(self.arch, str) else "cuda", self.arch, self.warp)

    def properties(self) -> dict[str, int]:
        """Returns the properties that Triton's launchers read."""
        return {
            "max_shared_mem": self.shared_memory,
            "max_num_regs": self.registers,
            "multiprocessor_count": self.processors,
            "warpSize": self.warp,
            "sm_clock_rate": 1_410_000,
            "mem_clock_rate": 1_215_000,
            "mem_bus_width": self.bus,
        }


A100 = Card("NVIDIA A100-SXM4-80GB", 80, 166_912, 108)
A30 = Card("NVIDIA A30", 80, 166_912, 56, bus=3072)
H100 = Card("NVIDIA H100 80GB HBM3", 90, 232_448, 132)
B200 = Card("NVIDIA B200", 100, 232_448, 148, bus=8192)
MI300X = Card("AMD Instinct MI300X", "gfx942", 65_536, 304, warp=64, bus=8192)


class Launch(NamedTuple):
    """A recorded launch: kernel, grid, config, device, arguments."""

    kernel: str
    grid: tuple[int, int, int]
    config: Mapping[str, Any]
    device: int
    args: tuple[Any, ...]


Seconds = Callable[[Launch], float]
Effect = Callable[[Launch], None]


def arbitrary(launch: Launch) -> float:
    """Returns a time that depends on the config alone, the same in every process."""
    return 1e-4 * (1 + crc32(repr(sorted(launch.config.items(), key=str)).encode()) % 1000 / 1000)


class FakeDriver(DriverBase):  # type: ignore[misc, unused-ignore]
    """A driver with fake cards; the first is the current one.

    `seconds` returns how long a launch takes on the fake clock, which events and benchmarks read; it may raise.
    `effect` changes the arguments of a launch; only with one do launches have results, which tuning compares.
    `launches` are recorded without their arguments, unless `noted` is False. `loads` counts loaded binaries. While
    `capturing` is True, the driver reports a graph capture. A worker in another process
    makes its driver by the `installer`: the `module:name` of a function that returns a context manager, and its
    arguments. Without one, no worker can be used.
    """

    pretends = True

    def __init__(
        self, *cards: Card, seconds: Seconds = arbitrary, effect: Effect | None = None, noted: bool = True
    ) -> None:
        self.cards = cards or (A100,)
        self.seconds, self.effect, self.noted = seconds, effect, noted
        self.installer: tuple[str, ...] = ()
        self.launches: list[Launch] = []
        self.loads, self.current, self.capturing = 0, 0, False
        self.utils = _Binaries(self)
        self.launcher_cls = lambda source, metadata: _Launcher(self, source, metadata)
        self._clock = threading.local()
        self._interface = _Interface(self)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return self.cards[self.current].target

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_current_device(self) -> int:
        return self.current

    def set_current_device(self, device: int) -> None:
        self.current = device

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_interface(self) -> Any:
        return self._interface

    def get_empty_cache_for_benchmark(self) -> Any:
        return None

    def clear_cache(self, cache: Any) -> None:
        pass

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        """Returns a benchmark of one launch on the fake clock."""

        def bench(call: Callable[[], Any], *, quantiles: Sequence[float], **_: Any) -> Sequence[float]:
            start, end = _Event(self), _Event(self)
            start.record()
            call()
            end.record()
            return [start.elapsed_time(end)] * len(quantiles)

        return bench

    @property
    def now(self) -> float:
        """Seconds on the fake clock; each thread has its own, as if it had its own device."""
        return getattr(self._clock, "now", 0.0)

    @property
    def lapses(self) -> int:
        """How often the clock failed: a launch that takes NaN seconds has no time, the next one has."""
        return getattr(self._clock, "lapses", 0)

    def launch(self, launch: Launch) -> None:
        """Does what a launch does: its effect, its time, its record."""
        if self.effect is not None:
            self.effect(launch)
        self.passed(self.seconds(launch))
        self.launches.append(launch._replace(args=()))

    def gpu_states(self) -> list[Any]:
        """Returns what the cards are doing, as NVML would report it: nothing is known."""
        return []

    def touch(self) -> None:
        """Is called by everything that uses the device; here it always works."""

    def synchronize(self) -> None:
        """Waits until the device is idle, which it always is."""

    def is_capturing(self) -> bool:
        """Whether the current stream is captured into a graph."""
        return self.capturing

    def read_clock(self) -> float:
        """Returns what an event notes of the clock."""
        return self.now

    def passed(self, seconds: float) -> None:
        """Advances the clock of the device."""
        if isnan(seconds):
            self._clock.lapses = self.lapses + 1
        else:
            self._clock.now = self.now + seconds


class _Binaries:
    """Accepts compiled code without loading it."""

    def __init__(self, driver: FakeDriver) -> None:
        self._driver = driver

    def get_device_properties(self, device: int) -> dict[str, int]:
        return self._driver.cards[device].properties()

    def load_binary(self, name: str, code: bytes, shared: int, device: int) -> tuple[None, str, int, int, int]:
        """Returns no module, so that nothing has to be unloaded when this driver is gone."""
        self._driver.touch()
        self._driver.loads += 1
        registers, spills, max_threads = 0, 0, 1024
        return None, name, registers, spills, max_threads

    def unload_module(self, module: str) -> None:
        pass


class _Launcher:
    """Records a launch, and advances the clock by its seconds."""

    def __init__(self, driver: FakeDriver, source: Any, metadata: Any) -> None:
        self._driver = driver
        names = source.fn.arg_names
        constants = {names[path[0]]: value for path, value in source.constants.items() if len(path) == 1}
        options = ("num_warps", "num_stages", "num_ctas", "maxnreg")
        self._config = constants | {name: getattr(metadata, name) for name in options if hasattr(metadata, name)}
        self._name = source.fn.__name__

    def __call__(self, x: int, y: int, z: int, stream: int, function: Any, packed: Any, *rest: Any) -> None:
        driver, args = self._driver, rest[3:]  # after the launch's metadata and its two hooks
        if not driver.noted:
            return
        driver.launch(Launch(self._name, (x, y, z), self._config, driver.current, args))


class _Event:
    """A moment on the fake clock."""

    def __init__(self, driver: FakeDriver) -> None:
        self._driver, self._at, self._lapses = driver, 0.0, 0

    def record(self, stream: Any = None) -> None:
        self._driver.touch()
        self._at, self._lapses = self._driver.read_clock(), self._driver.lapses

    def synchronize(self) -> None:
        self._driver.synchronize()

    def elapsed_time(self, end: _Event) -> float:
        self._driver.synchronize()
        return 1e3 * (end._at - self._at) if end._lapses == self._lapses else nan


class _Interface:
    """Replaces `torch.cuda`."""

    def __init__(self, driver: FakeDriver) -> None:
        self._driver = driver

    def Event(self, *, enable_timing: bool = True) -> _Event:  # noqa: N802 - the name is torch's
        return _Event(self._driver)

    def synchronize(self) -> None:
        self._driver.synchronize()

    def is_current_stream_capturing(self) -> bool:
        return self._driver.is_capturing()

    def get_device_name(self, device: int) -> str:
        return self._driver.cards[device].name


@contextmanager
def fake_driver(driver: FakeDriver) -> Iterator[FakeDriver]:
    """Makes a fake driver Triton's active one within a `with` block.

    A kernel remembers the target of a device index: use one that has not been launched under another driver.
    """
    before = driver_holder._active
    driver_holder.set_active(driver)
    max_shared_mem.cache_clear()  # cached by device index
    try:
        yield driver
    finally:
        driver_holder._active = before
        max_shared_mem.cache_clear()


def pretended(driver: FakeDriver) -> AbstractContextManager[FakeDriver]:
    """The former name of `fake_driver`."""
    warnings.warn("pretended is deprecated; use fake_driver", DeprecationWarning, stacklevel=2)
    return fake_driver(driver)
