"""Simulated cards for the acceptance kit: a healthy one, and cards with a fault that the kit must find (rung 2).

    tunewright gpu accept --simulate tunewright.testing.acceptance_cards:healthy

`PLANTED` names the faults, each with the stages that should find it; `with_fault("clock stuck")` is such a card.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import nan, sqrt
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from torch.utils._python_dispatch import _disable_current_modes
from triton import knobs

from tunewright.backends.gpu_state import GpuState
from tunewright.testing.hostile_device import (
    ABORT,
    HANG,
    ILLEGAL_ACCESS,
    HostileDriver,
    Misbehavior,
    dying_compiler,
    hostile_device,
)
from tunewright.testing.triton_driver import A30, A100, Card, Launch

PLANTED: dict[str, tuple[str, ...]] = {
    "another process on the card": ("inventory",),
    "throttled by heat": ("inventory",),
    "no flush": ("adapter",),
    "no shared memory": ("adapter",),
    "assembler dies": ("adapter",),
    "clock stuck": ("clock",),
    "clock twice as fast": ("clock",),
    "clock backwards": ("clock",),
    "clock coarse": ("clock",),
    "clock without times": ("clock",),
    "clock not linear": ("clock",),
    "speed drifts": ("clock",),
    "flush without effect": ("clock",),
    "equals differ": ("clock",),
    "hangs": ("clock",),
    "wrong results": ("kernels",),
    "changes an input": ("kernels",),
    "results vary": ("kernels",),
    "adds twice": ("kernels",),
    "illegal access": ("kernels",),
    "memory leaks": ("memory",),
    "memory peaks": ("memory",),
    "aborts": ("memory",),
    "fault unnoticed": ("faults",),
    "fault ends the process": ("faults",),
    "fault hangs": ("faults",),
    "stays lost": ("faults",),
    "launches on another stream": ("streams",),
    "capture not reported": ("streams",),
    "capture executes": ("streams",),
    "replay does nothing": ("streams",),
    "decision not in the graph": ("compile",),
    "second card computes wrongly": ("processes",),
    "second card dies": ("processes",),
    "slow driver calls": ("launch",),
    "prebuilt code not used": ("prebuilt",),
}
"""Faults, and the stages that should find them."""

TURN_SECONDS, LEAST_SECONDS = 1e-8, 2e-6


def healthy() -> SimulatedDevice:
    """Returns a card without faults."""
    return SimulatedDevice()


def with_fault(fault: str) -> SimulatedDevice:
    """Returns a card with one of the planted faults."""
    if fault not in PLANTED:
        raise ValueError(f"there is no planted fault {fault!r}; there are {', '.join(PLANTED)}")
    return SimulatedDevice(fault)


class SimulatedDevice:
    """A device under test without a GPU, with a fault or none; it has two cards of different models."""

    rung, place = 2, "cpu"

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.source = (f"{__name__}:SimulatedDevice", fault)
        self.patience = 20.0 if "hang" in fault else 120.0
        self.driver = AcceptanceDriver(fault)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Makes the card ready; each process has a context of its own."""
        self.driver = driver = AcceptanceDriver(self.fault)
        if self.fault == "assembler dies":
            folder = Path(knobs.cache.dir, "dying")
            folder.mkdir(parents=True, exist_ok=True)
            os.environ["TRITON_PTXAS_PATH"] = str(dying_compiler(folder, ".version"))  # noqa: TID251 - of this process
            knobs.cache.dir = str(folder / f"{time.monotonic_ns()}")
        if self.fault == "prebuilt code not used":
            knobs.compilation.always_compile = True
        if self.fault == "decision not in the graph":
            from tunewright.triton import dynamo  # noqa: PLC0415

            dynamo.with_decided_configs = lambda variable, args, kwargs: variable
        _let_dynamo_see_triton()
        with hostile_device(driver):
            yield

    def compile_backend(self, graph: Any, inputs: Any) -> Any:
        """Runs a graph as it is."""
        return graph.forward

    def describe(self) -> dict[str, Any]:
        """Returns the names of the cards."""
        return {"cards": [card.name for card in self.driver.cards]}

    def state(self) -> list[GpuState]:
        """Returns what a driver would report."""
        slowed = ("its temperature (by the hardware)",) if self.fault == "throttled by heat" else ()
        others = (4242,) if self.fault == "another process on the card" else ()
        return [GpuState(A100.name, "simulated", 1410, 1410, slowed_by=slowed, others=others)]

    def count(self) -> int:
        """Returns 2."""
        return len(self.driver.cards)

    def use(self, number: int) -> None:
        """Makes a card the current one."""
        self.driver.set_current_device(number)

    def wall(self) -> float:
        """Returns the seconds that have really passed on the simulated device."""
        return self.driver.now

    def adopt(self, *tensors: Any) -> None:
        """Counts tensors as memory of the card."""
        self.driver.adopt(*tensors)

    def memory(self) -> tuple[int, int]:
        """Returns the bytes in use, and the most so far."""
        return self.driver.allocated, self.driver.peak

    def reset_peak(self) -> None:
        """Begins to look for the peak anew."""
        self.driver.reset_peak()

    def compiling(self) -> AbstractContextManager[Any]:
        """Does not watch operations on tensors: Dynamo would trace that too."""
        context: AbstractContextManager[Any] = _disable_current_modes()
        return context

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        """Makes another stream the current one."""
        with self.driver.stream(7):
            yield

    @contextmanager
    def capture(self) -> Iterator[Any]:
        """Captures launches."""
        self.driver.captured.clear()
        with self.driver.capture():
            yield self

    def replay(self) -> None:
        """Executes what was captured."""
        if self.fault != "replay does nothing":
            for launch in list(self.driver.captured):
                self.driver.launch(launch)


class AcceptanceDriver(HostileDriver):
    """Computes what the kernels of the kit compute, and misbehaves as its fault says."""

    def __init__(self, fault: str = "") -> None:
        drift = (lambda now: 1 + 3 * (now % 0.3)) if fault == "speed drifts" else (lambda now: 1.0)
        step = 1e-4 if fault == "clock coarse" else 0.0
        misbehavior = Misbehavior(fault=self._fault_of, drift=drift, resolution=step)
        cards = [A100, A30]
        if fault == "no shared memory":
            cards[0] = Card(A100.name, 80, 0, 108)
        super().__init__(*cards, misbehavior=misbehavior, seconds=self._seconds, effect=self._effect)
        self.planted, self.counts = fault, Counter[str]()
        self.captured: list[Launch] = []
        self._kept: list[torch.Tensor] = []
        self.waits_forever = signal.pause
        self._is_flushed, self._first_buffer = False, 0

    def __getattribute__(self, name: str) -> Any:
        if name == "get_empty_cache_for_benchmark" and self.planted == "no flush":
            raise AttributeError(name)
        return super().__getattribute__(name)

    # What launches do

    def _fault_of(self, launch: Launch) -> str | None:
        name, planted = launch.kernel, self.planted
        self.counts[name] += 1
        if name == "accept_fault" and launch.config.get("BAD") == 1:
            ways = {"fault unnoticed": None, "fault ends the process": ABORT, "fault hangs": HANG}
            return ways.get(planted, ILLEGAL_ACCESS)
        faults = {
            ("hangs", "accept_spin"): HANG,
            ("illegal access", "accept_softmax"): ILLEGAL_ACCESS,
            ("aborts", "accept_add"): ABORT,
            ("stays lost", "accept_fault"): ILLEGAL_ACCESS,
        }
        if planted == "second card dies" and launch.device == 1:
            return ABORT
        return faults.get((planted, name))

    def launch(self, launch: Launch) -> None:
        """Launches; what is captured can be replayed."""
        is_captured = self._graph is not None and super().is_capturing()
        if is_captured:
            self.captured.append(launch)
            if self.planted == "capture executes":
                self._effect(launch)
        if self.planted == "memory peaks":
            self._kept = [torch.empty(1 << 28, dtype=torch.uint8)]
        super().launch(launch)

    def _effect(self, launch: Launch) -> None:
        _EFFECTS[launch.kernel](*launch.args)
        name, planted = launch.kernel, self.planted
        if (planted, name) == ("wrong results", "accept_sums"):
            launch.args[1].add_(1)
        elif (planted, name) == ("changes an input", "accept_norm"):
            launch.args[1][0] += 1
        elif (planted, name) == ("results vary", "accept_softmax"):
            launch.args[1].mul_(1 + 0.5 * (self.counts[name] % 3))
        elif (planted, name) == ("adds twice", "accept_increment"):
            launch.args[0].add_(1)
        elif planted == "second card computes wrongly" and launch.device == 1:
            launch.args[1].add_(1)

    def _seconds(self, launch: Launch) -> float:
        name, args, planted = launch.kernel, launch.args, self.planted
        if name == "accept_spin":
            seconds = LEAST_SECONDS + TURN_SECONDS * args[1]
            if planted == "clock not linear":
                seconds = LEAST_SECONDS + sqrt(TURN_SECONDS * args[1]) / 50
            if planted == "clock without times" and self.counts[name] % 3 == 0:
                return nan
            self._first_buffer = self._first_buffer or args[0].data_ptr()
            differs = planted == "equals differ" and args[0].data_ptr() != self._first_buffer
            return float(seconds * (1.1 if differs else 1.0))
        if name == "accept_read":
            is_cold, self._is_flushed = self._is_flushed, False
            return 2e-5 if is_cold else 1e-5
        options = sorted((key, value) for key, value in launch.config.items() if isinstance(value, int))
        digest = crc32(repr((name, options)).encode())
        return 1e-4 * (1 + digest % 1000 / 1000)

    # What the driver answers

    def clear_cache(self, cache: Any) -> None:
        """Flushes the caches."""
        super().clear_cache(cache)
        self._is_flushed = self.planted != "flush without effect"

    def read_clock(self) -> float:
        """Returns the time by the clock of the device."""
        factors = {"clock stuck": 0.0, "clock twice as fast": 2.0, "clock backwards": -1.0}
        return super().read_clock() * factors.get(self.planted, 1.0)

    def is_capturing(self) -> bool:
        """Whether the current stream is captured, as far as the driver says so."""
        asked_by_us = sys._getframe(1).f_code.co_name in ("launch", "_launch_captured")
        return super().is_capturing() and (asked_by_us or self.planted != "capture not reported")

    def passed(self, seconds: float) -> None:
        """Advances the clock of the stream that executes."""
        if self.planted != "launches on another stream":
            super().passed(seconds)
            return
        with self.stream(0):
            super().passed(seconds)

    def take_memory(self, result: Any, *, on_host: bool) -> None:
        """Counts the memory of a result, and keeps it if memory leaks."""
        super().take_memory(result, on_host=on_host)
        if self.planted == "memory leaks" and isinstance(result, torch.Tensor):
            self._kept.append(result)

    def get_current_device(self) -> int:
        """Returns the current card."""
        if self.planted == "slow driver calls":
            _burn(2e-4)
        return super().get_current_device()


def _burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def _let_dynamo_see_triton() -> None:
    """Lets Dynamo take Triton's kernels for such, as it does where there is a GPU."""
    import torch.utils._triton as seen  # noqa: PLC0415

    seen.has_triton = lambda: True


def _norm(x: Any, weight: Any, out: Any, *_: Any) -> None:
    out.copy_(torch.nn.functional.layer_norm(x, x.shape[-1:], weight, eps=1e-5))


_EFFECTS: dict[str, Callable[..., Any]] = {
    "accept_add": lambda x, y, out, *_: torch.add(x, y, out=out),
    "accept_softmax": lambda x, out, *_: out.copy_(torch.softmax(x, -1)),
    "accept_norm": _norm,
    "accept_sums": lambda x, out, *_: out.copy_(x.sum(0)),
    "accept_matmul": lambda a, b, out, *_: out.copy_(a.float() @ b.float()),
    "accept_increment": lambda x, *_: x.add_(1),
    "accept_spin": lambda out, *_: out.fill_(1),
    "accept_read": lambda x, out, *_: out.fill_(1),
    "accept_fault": lambda x, out, *_: out.copy_(x),
}
"""What the kernels of the kit do."""
