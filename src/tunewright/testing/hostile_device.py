"""A fake GPU that fails as real ones do: for tests of a tuner on a device that misbehaves (rung 2).

Kernels are compiled for real and never executed; faults, times and memory are simulated, always in the same way.

    bad = Misbehavior(fault=lambda launch: ILLEGAL_ACCESS if launch.config["BLOCK"] == 64 else None)
    with hostile_device(HostileDriver(A100, misbehavior=bad)) as driver:
        kernel[(64,)](x, y, n)

- A launch returns before its kernel runs, so its error surfaces at a later call. From then on every call of that device
  fails, until the process ends: the context is lost. Other devices go on.
- Operations on tensors count as work on the device: they fail on a lost one, take its memory, and wait if they read.
- Copies with `.to("cpu", copy=True)` are on the host. Only the thread that entered the `with` block is watched.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from math import isnan
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tunewright.testing.triton_driver import Card, FakeDriver, Launch, _Interface, fake_driver

ILLEGAL_ACCESS = "an illegal memory access was encountered"
MISALIGNED = "misaligned address"
DEVICE_ASSERT = "device-side assert triggered"
TIMED_OUT = "the launch timed out and was terminated"
STICKY = (ILLEGAL_ACCESS, MISALIGNED, DEVICE_ASSERT, TIMED_OUT)
"""Errors of a kernel while it runs: they surface later, and the context is lost."""

REFUSED = "too many resources requested for launch"
"""An error of the launch itself, after which the device goes on."""

HANG = "hang"
"""A kernel that never ends: whoever waits for the device waits for ever."""

ABORT = "abort"
"""A launch that ends the process, as an assertion in a driver does."""

PAUSE_SECONDS = 3e-5
"""How long a device idles that is told to."""

Fault = Callable[[Launch], str | None]
"""Returns what is wrong with a launch: one of the constants above; None if nothing is."""


def no_fault(launch: Launch) -> str | None:
    """Finds nothing wrong."""
    return None


def steady(now: float) -> float:
    """Is the drift of a device that keeps its speed."""
    return 1.0


class Misbehavior(NamedTuple):
    """How a device misbehaves.

    - `fault`: what is wrong with a launch.
    - `delay`: calls that still succeed after a launch that fails, unless they wait for the device.
    - `memory`: bytes of the device; None means no limit.
    - `flush_bytes`: size of the buffer by which a benchmark flushes caches.
    - `drift`: how many times as long a launch takes, by the seconds that the device has run.
    - `resolution`: seconds by which its clock advances at a time.
    - `host_gap`: seconds that an idle device waits for a launch, by the number of the launch: the host's work takes
      them. A device that was told to pause is not idle.
    """

    fault: Fault = no_fault
    delay: int = 0
    memory: int | None = None
    flush_bytes: int = 1 << 20
    drift: Callable[[float], float] = steady
    resolution: float = 0.0
    host_gap: Callable[[int], float] | None = None


WELL_BEHAVED = Misbehavior()
"""A device without faults and limits, whose memory is counted."""


class Graph(NamedTuple):
    """What was captured: the stream, the launches, and what broke the rules."""

    stream: int
    launches: list[Launch]
    violations: list[str]


class _Context:
    """The state of one device: its error, and its memory."""

    def __init__(self) -> None:
        self.error: str | None = None
        self.calls_left = 0
        self.is_hung = False
        self.sizes: dict[int, int] = {}
        self.peak = 0

    @property
    def allocated(self) -> int:
        return sum(self.sizes.values())


class HostileDriver(FakeDriver):
    """A fake driver whose devices misbehave; `waits_forever` is called where a hung device is waited for."""

    def __init__(self, *cards: Card, misbehavior: Misbehavior = WELL_BEHAVED, **options: Any) -> None:
        super().__init__(*cards, **options)
        self.misbehavior = misbehavior
        self.waits_forever: Callable[[], Any] = Event().wait
        self.launch_streams: list[int] = []
        self._contexts = [_Context() for _ in self.cards]
        self._streams = [0 for _ in self.cards]
        self._times: dict[tuple[int, int], float] = {}
        self._graph: Graph | None = None
        self.pauses, self._is_paused = 0, False
        self._interface = _HostileInterface(self)

    # Errors

    @property
    def is_lost(self) -> bool:
        """Whether every call of the current device fails."""
        context = self._contexts[self.current]
        return context.error is not None and context.calls_left <= 0

    def touch(self) -> None:
        """Fails if the device is lost; the error of an earlier launch may surface here."""
        context = self._contexts[self.current]
        if context.error is None:
            return
        if context.calls_left > 0:
            context.calls_left -= 1
            return
        raise RuntimeError(f"CUDA error: {context.error}")

    def synchronize(self) -> None:
        """Waits for the device: now the error of an earlier launch surfaces."""
        self._refuse_in_capture("a wait for the device")
        context = self._contexts[self.current]
        if context.is_hung:
            self.waits_forever()
        context.calls_left = 0
        self.touch()

    def launch(self, launch: Launch) -> None:
        """Launches as the fake driver does, and takes note of what is wrong with it."""
        self.touch()
        context, fault = self._contexts[self.current], self.misbehavior.fault(launch)
        if fault == ABORT:
            os.abort()
        if fault == REFUSED:
            raise RuntimeError(f"Triton Error [CUDA]: {fault}")
        if self._graph is not None and self.is_capturing():
            self._graph.launches.append(launch._replace(args=()))
            return
        if fault == HANG:
            context.is_hung = True
        elif fault is not None:
            context.error, context.calls_left = fault, self.misbehavior.delay
        if self.misbehavior.host_gap is not None and not self._is_paused:
            self.passed(self.misbehavior.host_gap(len(self.launches)))
        self._is_paused = False
        effect, self.effect = self.effect, self.effect if fault is None else None
        try:
            super().launch(launch)
        finally:
            self.effect = effect
        self.launch_streams.append(self._streams[self.current])

    # Memory

    def get_empty_cache_for_benchmark(self) -> Any:
        """Returns the buffer that flushes caches; it takes memory of the device."""
        self.touch()
        return torch.empty(self.misbehavior.flush_bytes, dtype=torch.uint8)

    def clear_cache(self, cache: Any) -> None:
        """Flushes the caches, which takes no time here."""
        self.touch()

    @property
    def allocated(self) -> int:
        """Bytes of the current device that are in use, as far as operations have shown them."""
        return self._contexts[self.current].allocated

    @property
    def peak(self) -> int:
        """The most bytes that were in use at once."""
        return self._contexts[self.current].peak

    def reset_peak(self) -> None:
        """Begins to look for the peak anew."""
        self._contexts[self.current].peak = self.allocated

    def adopt(self, *tensors: torch.Tensor) -> None:
        """Counts tensors as memory of the current device."""
        context = self._contexts[self.current]
        for tensor in tensors:
            storage = tensor.untyped_storage()
            number, size = id(storage), storage.nbytes()
            if not size or number in context.sizes or id(storage) in _host_memory:
                continue
            limit = self.misbehavior.memory
            if limit is not None and context.allocated + size > limit:
                free = limit - context.allocated
                raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes, {free} are free")
            context.sizes[number] = size
            context.peak = max(context.peak, context.allocated)
            weakref.finalize(storage, context.sizes.pop, number, None)

    # Streams, graphs and clocks

    def get_current_stream(self, device: int) -> int:
        return self._streams[device]

    @contextmanager
    def stream(self, number: int) -> Iterator[None]:
        """Makes another stream of the current device the current one; each has a clock of its own."""
        device, before = self.current, self._streams[self.current]
        self._streams[device] = number
        try:
            yield
        finally:
            self._streams[device] = before

    def is_capturing(self) -> bool:
        """Whether the current stream is captured."""
        return self._graph is not None and self._graph.stream == self._streams[self.current]

    @contextmanager
    def capture(self) -> Iterator[Graph]:
        """Captures launches of the current stream instead of executing them.

        Meanwhile nothing may wait for the device or take memory. Whatever does so fails, and so does the capture.
        """
        self._graph = graph = Graph(self._streams[self.current], [], [])
        try:
            yield graph
        finally:
            self._graph = None
        if graph.violations:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    def _refuse_in_capture(self, what: str) -> None:
        if self._graph is not None:
            self._graph.violations.append(what)
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    @property
    def now(self) -> float:
        """Seconds on the clock of the current stream."""
        return self._times.get((self.current, self._streams[self.current]), 0.0)

    def passed(self, seconds: float) -> None:
        """Advances the clock of the current stream, as far as the device has drifted."""
        if isnan(seconds):
            super().passed(seconds)
            return
        self._times[self.current, self._streams[self.current]] = self.now + seconds * self.misbehavior.drift(self.now)

    def pause(self) -> None:
        """Idles for a while, so that the next launch finds the host ahead."""
        self.touch()
        self.pauses, self._is_paused = self.pauses + 1, True
        self.passed(PAUSE_SECONDS)

    def read_clock(self) -> float:
        """Returns the time by a clock that advances in steps."""
        step = self.misbehavior.resolution
        return self.now // step * step if step else self.now

    # Operations on tensors

    def operate(self, *, waits: bool, is_view: bool) -> None:
        """Takes note of an operation on tensors; views do not touch the device."""
        if waits:
            self.synchronize()
        elif not is_view:
            self.touch()

    def take_memory(self, result: Any, *, on_host: bool) -> None:
        """Counts the memory of a result."""
        for tensor in tree_leaves(result):
            if not isinstance(tensor, torch.Tensor):
                continue
            storage = tensor.untyped_storage()
            if on_host:
                _host_memory.add(id(storage))
                weakref.finalize(storage, _host_memory.discard, id(storage))
            elif storage.nbytes() and id(storage) not in self._contexts[self.current].sizes:
                self.adopt(tensor)


_host_memory: set[int] = set()
"""Storages that were copied to the host; on the fake device all tensors are on the CPU."""

_WAITING = ("aten::equal", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero")
_VIEWS = ("aten::set_", "aten::detach", "aten::detach_")


class _HostileInterface(_Interface):
    """Replaces `torch.cuda`, with the memory of the device."""

    _driver: HostileDriver

    def _sleep(self, cycles: int) -> None:
        """Lets the device idle."""
        self._driver.pause()

    def mem_get_info(self) -> tuple[int, int]:
        """Returns the bytes that are free, and all bytes."""
        self._driver.touch()
        limit = self._driver.misbehavior.memory or 1 << 36
        return max(0, limit - self._driver.allocated), limit


class _WatchedOperations(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Tells the driver of every operation on tensors."""

    def __init__(self, driver: HostileDriver) -> None:
        super().__init__()
        self._driver = driver

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Returns False: to skip it, torch would import all of it first, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func._schema.name
        on_host = name == "aten::_to_copy" and str(kwargs.get("device")) == "cpu"
        self._driver.operate(waits=on_host or name in _WAITING, is_view=func.is_view or name in _VIEWS)
        self._driver.take_memory(args, on_host=False)
        result = func(*args, **kwargs)
        self._driver.take_memory(result, on_host=on_host)
        return result


@contextmanager
def hostile_device(driver: HostileDriver) -> Iterator[HostileDriver]:
    """Makes a hostile driver Triton's active one within a `with` block, and watches operations on tensors."""
    with fake_driver(driver), _WatchedOperations(driver):
        yield driver


def dying_compiler(folder: Path, marker: str) -> Path:
    """Writes a `ptxas` that dies on code with `marker`, such as ".reqntid 256" for 8 warps; returns its path.

    Set `TRITON_PTXAS_PATH` to it: Triton runs it in a child process, and compiles all other code as usual.
    """
    package = find_spec("triton")
    assert package is not None
    assert package.origin is not None
    real = Path(package.origin).parent / "backends" / "nvidia" / "bin" / "ptxas"
    path = folder / "ptxas"
    path.write_text(
        "#!/bin/sh\n"
        f'for word; do if [ -f "$word" ] && grep -q -e "{marker}" "$word"; then kill -ABRT $$; fi; done\n'
        f'exec "{real}" "$@"\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
