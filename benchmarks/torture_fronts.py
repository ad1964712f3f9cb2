"""Tuners for the torture suite that go through the other front ends: a call on tensors, and a Triton kernel.

The machine is simulated, the rest is not: the torch tuner computes a small product in every launch, the Triton tuner
launches on a fake driver, whose clock shows what the machine says.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
import triton
import triton.language as tl

import tunewright as tw
from tunewright.errors import NothingWorked
from tunewright.measure.evaluator import Evaluator
from tunewright.model.decision import Problem
from tunewright.testing.keys import KEY
from tunewright.testing.torture import SimulatedMachine
from tunewright.testing.torture.tuners import NoChoice
from tunewright.testing.triton_driver import FakeDriver, fake_driver
from tunewright.torch import candidate
from tunewright.torch.oracle import ExpectedTensors
from tunewright.torch.tensor_sets import CallArguments
from tunewright.torch.workload import TorchWorkload
from tunewright.triton import Config as TritonConfig
from tunewright.triton import autotune

SIZE = 8


def _session() -> tw.Session:
    return tw.Session(store="memory:", pool="serial", strategy="exhaustive", trials=0, min_expected_gain=0.0)


class SimulatedTimer:
    """Sums what the machine's clock read during calls, in place of a timer of the host."""

    clock = "simulated"
    machine: SimulatedMachine

    def __init__(self, call: Any, threads: int) -> None:
        self._call = call

    def __call__(self, count: int) -> float:
        return sum(self._read() for _ in range(count))

    def use(self, clock: str) -> None:
        """There is one clock only."""

    def _read(self) -> float:
        self._call()
        return float(getattr(self.machine, "shown", 0.0))


class TorchTuner:
    """Calls on tensors, as those of `torch.compile` and of matrix products."""

    name = "torch"

    def choose(self, machine: SimulatedMachine) -> int:
        """Returns the decision of `Session.tune` with the workload of the torch front."""

        def build(config: tw.Config) -> Any:
            def launch(x: torch.Tensor) -> torch.Tensor:
                machine.shown = machine.run(int(config["candidate"]))  # type: ignore[attr-defined]
                return x * 2

            return launch

        def expect(values: Any) -> ExpectedTensors:
            return ExpectedTensors.of([values[0] * 2], [values[0].double() * 2])

        call = CallArguments((torch.randn(SIZE),))
        workload = TorchWorkload("torture", build, call, expect, candidate.TorchTimingOptions())
        space = tw.Space(tw.Knob("candidate", range(machine.candidates)))
        problem = Problem(KEY, space, tw.Config(candidate=machine.default))
        timer = type("Timer", (SimulatedTimer,), {"machine": machine})
        with mock.patch.object(candidate, "HostTimer", timer):
            return int(_session().tune(problem, Evaluator(workload)).config["candidate"])


@triton.jit
def _scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803 - as Triton does
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 3 * tl.load(x_ptr + at, mask=at < n), mask=at < n)


class _Uncompiled:
    """A kernel whose launches take the machine's time on the fake clock; nothing is compiled."""

    def __init__(self, driver: FakeDriver, machine: SimulatedMachine) -> None:
        self.fn, self.arg_names = _scale, _scale.arg_names
        self._driver, self._machine = driver, machine

    def run(self, *args: Any, warmup: bool, BLOCK: int, **options: Any) -> None:  # noqa: N803 - as the kernel has it
        if not warmup:
            self._driver.passed(self._machine.run(BLOCK))


class TritonTuner:
    """A Triton kernel with one config for each candidate."""

    name = "triton"

    def choose(self, machine: SimulatedMachine) -> int:
        """Returns what `autotune` decides."""
        session, order = _session(), [machine.default, *range(machine.candidates)]
        configs = [TritonConfig({"BLOCK": number}, num_warps=1) for number in dict.fromkeys(order)]
        with fake_driver(FakeDriver()) as driver:
            kernel = autotune(configs, ["n"], session=session)(_Uncompiled(driver, machine))
            try:
                kernel[(1,)](torch.randn(SIZE), torch.zeros(SIZE), SIZE)
            except NothingWorked as error:
                raise NoChoice(str(error)) from error
        (chosen,) = session.chosen.values()
        return int(chosen["BLOCK"])
