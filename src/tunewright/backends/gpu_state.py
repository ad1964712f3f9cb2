"""The state of the GPUs: clocks, power, why they are slowed down, and who else uses them; by NVML or amdsmi.

NVML comes with NVIDIA's driver, and is called by ctypes. amdsmi comes with ROCm, as a Python module. Without either,
nothing is known and nothing is said. Neither was asked on a real card yet: tests use a stand-in for each.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from tunewright.lazy_logging import LazyLogger

log = LazyLogger(__name__)

NVML = "libnvidia-ml.so.1"

SLOWED_DOWN = {
    0x4: "its power limit",
    0x8: "a hardware slowdown",
    0x20: "its temperature (by the driver)",
    0x40: "its temperature (by the hardware)",
    0x80: "the power supply",
}
"""Why NVML says that clocks are low, if that disturbs a measurement: idleness and clocks set by a user do not."""

MAX_PROCESSES = 64
_GRAPHICS, _MEMORY, _TEMPERATURE = 1, 2, 0

callers: set[int] = set()
"""Processes that this one works for, and that wait meanwhile: they do not disturb it."""


def _own_processes() -> set[int]:
    return {os.getpid(), *callers}


class GpuState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of one card; a figure is None, or a list is empty, if the card does not report it.

    Clocks are in MHz, power is in watts. `others` are the numbers of other processes that use it.
    """

    name: str
    driver: str = ""
    clock: int | None = None
    max_clock: int | None = None
    memory_clock: int | None = None
    temperature: int | None = None
    power: float | None = None
    power_limit: float | None = None
    slowed_by: tuple[str, ...] = ()
    others: tuple[int, ...] = ()

    def describe(self) -> str:
        """Returns one line for people."""
        parts = [self.name]
        if self.clock is not None:
            parts.append(f"{self.clock} of {self.max_clock or '?'} MHz")
        if self.power is not None:
            parts.append(f"{self.power:.0f} of {self.power_limit or 0:.0f} W")
        if self.temperature is not None:
            parts.append(f"{self.temperature} C")
        if self.driver:
            parts.append(f"driver {self.driver}")
        return ", ".join(parts)

    def complaints(self) -> list[str]:
        """Returns what disturbs measurements on this card, in sentences for people."""
        sentences = [f"{self.name} is slowed down by {reason}" for reason in self.slowed_by]
        if self.others:
            who = ", ".join(map(str, self.others[:5]))
            sentences.append(f"{self.name} is also used by {len(self.others)} other processes ({who})")
        return sentences


def read_gpu_state() -> list[GpuState]:
    """Returns the state of all cards now, in the order of the driver; empty if there are none or nothing is known."""
    return [*_read_nvml(), *_read_amdsmi()]


class _ProcessInfo(ctypes.Structure):
    """NVML's `nvmlProcessInfo_t`."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


def _read_nvml() -> list[GpuState]:
    try:
        library = ctypes.CDLL(NVML)
    except OSError:
        return []
    if library.nvmlInit_v2() != 0:
        log.info("NVML cannot be initialized: the state of the GPUs is not known")
        return []
    try:
        count = ctypes.c_uint()
        if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return []
        return [state for number in range(count.value) if (state := _Nvml(library).read(number)) is not None]
    finally:
        library.nvmlShutdown()


class _Nvml:
    """Reads one card; what fails is not known."""

    def __init__(self, library: Any) -> None:
        self._library, self._card = library, ctypes.c_void_p()

    def read(self, number: int) -> GpuState | None:
        if self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(number), ctypes.byref(self._card)) != 0:
            return None
        power, limit = self._number("PowerUsage"), self._number("EnforcedPowerLimit")
        reasons = self._number("CurrentClocksThrottleReasons", size=ctypes.c_ulonglong) or 0
        return GpuState(
            self._text("nvmlDeviceGetName", self._card) or f"GPU {number}",
            self._text("nvmlSystemGetDriverVersion"),
            self._number("ClockInfo", _GRAPHICS),
            self._number("MaxClockInfo", _GRAPHICS),
            self._number("ClockInfo", _MEMORY),
            self._number("Temperature", _TEMPERATURE),
            None if power is None else power / 1000,
            None if limit is None else limit / 1000,
            tuple(reason for bit, reason in SLOWED_DOWN.items() if reasons & bit),
            tuple(self._processes()),
        )

    def _call(self, name: str, *arguments: Any) -> bool:
        function = getattr(self._library, name, None)
        return function is not None and function(*arguments) == 0

    def _number(self, what: str, *arguments: int, size: type[Any] = ctypes.c_uint) -> int | None:
        value, name = size(), f"nvmlDeviceGet{what}"
        worked = self._call(name, self._card, *map(ctypes.c_uint, arguments), ctypes.byref(value))
        return int(value.value) if worked else None

    def _text(self, name: str, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(96)
        worked = self._call(name, *arguments, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode(errors="replace") if worked else ""

    def _processes(self) -> Iterator[int]:
        """Yields the numbers of other processes; the card does not say whose containers they are in."""
        infos, count = (_ProcessInfo * MAX_PROCESSES)(), ctypes.c_uint(MAX_PROCESSES)
        name = "nvmlDeviceGetComputeRunningProcesses_v3"
        if self._call(name, self._card, ctypes.byref(count), infos):
            yield from (info.pid for info in infos[: count.value] if info.pid not in _own_processes())


def _read_amdsmi() -> list[GpuState]:
    try:
        import amdsmi  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - comes with ROCm
    except (ImportError, OSError, KeyError):  # as it raises without its library
        return []
    try:
        amdsmi.amdsmi_init()
    except amdsmi.AmdSmiException as error:
        log.info("amdsmi cannot be initialized: %s", error)
        return []
    try:
        return [_read_amd_card(amdsmi, handle) for handle in amdsmi.amdsmi_get_processor_handles()]
    finally:
        amdsmi.amdsmi_shut_down()


def _read_amd_card(amdsmi: Any, handle: Any) -> GpuState:
    def ask(function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(handle, *arguments)
        except amdsmi.AmdSmiException:
            return {}

    clock = ask(amdsmi.amdsmi_get_clock_info, amdsmi.AmdSmiClkType.GFX)
    power, name = ask(amdsmi.amdsmi_get_power_info), ask(amdsmi.amdsmi_get_gpu_asic_info).get("market_name")
    watts = _plain_number(power, "current_socket_power", "average_socket_power")
    processes = [entry.get("pid") for entry in ask(amdsmi.amdsmi_get_gpu_process_list) or ()]
    return GpuState(
        str(name or "AMD GPU"),
        str(ask(amdsmi.amdsmi_get_gpu_driver_info).get("driver_version") or ""),
        clock=_plain_number(clock, "clk", "cur_clk"),
        max_clock=_plain_number(clock, "max_clk"),
        power=watts,
        power_limit=_plain_number(power, "power_limit"),
        others=tuple(int(pid) for pid in processes if isinstance(pid, int) and pid not in _own_processes()),
    )


def _plain_number(values: Any, *names: str) -> int | None:
    """Returns the first of these that is a number: what is not known is the text N/A."""
    found: Sequence[Any] = [values.get(name) for name in names]
    return next((value for value in found if isinstance(value, int)), None)
