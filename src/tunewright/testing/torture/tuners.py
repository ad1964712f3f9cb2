"""Adapters of this library and other tuners to the simulated machine."""

from __future__ import annotations

import ctypes
import io
import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import chdir, redirect_stdout
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np

from tunewright.cases.inputs import Inputs
from tunewright.errors import PluginError, TunewrightError
from tunewright.measure.evaluator import Evaluator
from tunewright.measure.kernel_workload import KernelWorkload
from tunewright.model.decision import Problem
from tunewright.model.device import Device
from tunewright.model.key import Key
from tunewright.model.signature import CallSignature, Signature
from tunewright.ports.backend import Kernel, Launch
from tunewright.session import Session
from tunewright.settings import Settings
from tunewright.spaces.config import Config
from tunewright.spaces.rule import Knob
from tunewright.spaces.space import Space
from tunewright.stores.memory import MemoryStore
from tunewright.testing.torture.machine import Crash, Refused, SimulatedMachine


class NoChoice(TunewrightError):
    """Raised when a tuning ends without a choice although candidates work."""


class Tuner(Protocol):
    """A tuner under test."""

    name: str

    def choose(self, machine: SimulatedMachine) -> int:
        """Returns the chosen candidate; raises a TunewrightError if the tuning is lost."""
        ...


class TunewrightTuner:
    """This library: trials of every candidate, the race of the finalists, and the decision."""

    name = "tunewright"

    def choose(self, machine: SimulatedMachine) -> int:
        """Returns the decision of `Session.tune`."""
        kernel = Kernel("torture", _empty_kernel, (), Path())
        backend, default = _SimulatedBackend(machine), Config(candidate=machine.default)
        key = backend.key(kernel, Signature(()), {"threads": "1"})
        problem = Problem(key, Space(Knob("candidate", range(machine.candidates))), default)
        session = Session(Settings(pool="serial", strategy="exhaustive", trials=0), store=MemoryStore())
        return int(
            session.tune(problem, Evaluator(KernelWorkload(backend, kernel, (Inputs(),), default))).config["candidate"]
        )


def _empty_kernel() -> None: ...


class _SimulatedBackend:
    """A backend whose kernels are the candidates of a machine."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self.machine = machine

    def signature(self, kernel: Kernel) -> CallSignature:
        return CallSignature.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        return Key(kernel.name, "simulated", signature, Device("simulated", "simulated", "none"), {}, mode)

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> int:
        return int(config["candidate"])

    def load(self, kernel: Kernel, artifact: int) -> Launch:
        return _Launch(self.machine, artifact)

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> _Timer:
        assert isinstance(launch, _Launch)
        return _Timer(launch)


class _Launch:
    def __init__(self, machine: SimulatedMachine, candidate: int) -> None:
        self.machine, self.candidate = machine, candidate

    def __call__(self) -> None:
        self.machine.run(self.candidate)


class _Timer:
    clock = "simulated"

    def __init__(self, launch: _Launch) -> None:
        self._launch = launch

    def __call__(self, count: int) -> float:
        return self._launch.machine.run(self._launch.candidate, count)

    def flush(self, *, whole: bool = False) -> None:
        """There are no caches."""


class DoBench:
    """Triton 3.9.0: `do_bench` on each config in turn, and the smallest median.

    Step for step what `triton.testing.do_bench` and `triton.runtime.autotuner` do, milliseconds and all; there is no
    cache to clear. A config out of resources counts as infinitely slow; any other error ends the tuning.
    """

    name = "do_bench"

    def __init__(self, warmup: float = 25, rep: float = 100) -> None:
        self.warmup, self.rep = warmup, rep

    def choose(self, machine: SimulatedMachine) -> int:
        """Returns the first config with the smallest quantiles."""
        timings = {i: self._bench(machine, i) for i in range(machine.candidates)}
        return min(timings, key=lambda i: timings[i])

    def _bench(self, machine: SimulatedMachine, candidate: int) -> list[float]:
        try:
            machine.run(candidate)
            estimate = machine.run(candidate, 5) * 1e3 / 5
            warmups, repeats = (max(1, int(effort / estimate)) for effort in (self.warmup, self.rep))
            machine.run(candidate, warmups)
            times = [seconds * 1e3 for seconds in machine.each(candidate, repeats).tolist()]
        except Refused:
            return [math.inf, math.inf, math.inf]
        except (ZeroDivisionError, ValueError) as error:  # the estimate was 0, or no number
            raise NoChoice(f"do_bench raised {type(error).__name__}: {error}") from error
        return [_quantile(times, q) for q in (0.5, 0.2, 0.8)]


def _quantile(times: list[float], q: float) -> float:
    ordered, point = sorted(times), q * (len(times) - 1)
    lower, upper = math.floor(point), math.ceil(point)
    share = point - lower
    return (1 - share) * ordered[lower] + share * ordered[upper]


_SOURCE = "float launch(long machine) { return ((float (*)(int)) machine)(candidate); }"
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int)


class KernelTuner:
    """Kernel Tuner: `tune_kernel` by brute force with its own iterations and mean.

    It compiles and times a C function that calls back into the machine and returns the milliseconds read there, as its
    C kernels do. A launch that fails is raised by an observer, within the tool's own loop, so that the tool judges it.
    """

    name = "kernel_tuner"

    def __init__(self) -> None:
        try:
            self._tool = import_module("kernel_tuner")
            self._observer: type = import_module("kernel_tuner.observers").BenchmarkObserver
        except ImportError as error:
            raise PluginError("this tuner needs Kernel Tuner; pip install kernel_tuner==1.5.0") from error

    def choose(self, machine: SimulatedMachine) -> int:
        """Returns the best config that it finds."""
        failures: list[Crash] = []

        def launch(candidate: int) -> float:
            try:
                return machine.run(candidate) * 1e3
            except Crash as failure:  # which cannot pass through C
                failures.append(failure)
                return 0.0

        callback = _CALLBACK(launch)
        pointer = np.int64(ctypes.cast(callback, ctypes.c_void_p).value or 0)
        # It writes to the current folder, prints failures, and warns about threads.
        with TemporaryDirectory() as folder, chdir(folder), redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, environment = self._tool.tune_kernel(
                "launch", _SOURCE, 1, [pointer], {"candidate": list(range(machine.candidates))},
                lang="C", compiler="gcc", strategy="brute_force", quiet=True, observers=[self._raiser(failures)],
            )  # fmt: skip
        best = environment["best_config"]
        if "__error__" in best:
            raise NoChoice("kernel_tuner found no config that works")
        return int(best["candidate"])

    def _raiser(self, failures: list[Crash]) -> Any:
        """Returns an observer that raises the failures of launches."""

        def after_start(observer: Any) -> None:
            if failures:
                raise failures.pop()

        results: Callable[[Any], dict[str, float]] = lambda observer: {}  # noqa: E731
        return type("Raiser", (self._observer,), {"after_start": after_start, "get_results": results})()
