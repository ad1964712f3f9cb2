"""Toy: the back end. A kernel is a function that writes a program for a config."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tunewright.backends.host import source_of
from tunewright.model.key import Key
from tunewright.model.signature import Reading, Signature
from tunewright.ports.backend import Kernel, Launch
from tunewright.spaces.config import Config
from tunewright_toy.machine import DEVICE, HERTZ, VERSION, Program

Writer = Callable[..., Program]


class Toy:
    """Kernels for the toy machine: `writer` makes a program from the values of the knobs."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def signature(self, kernel: Kernel) -> Reading:
        """How to tell calls apart."""
        return Reading.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """The writer's source, this kind of machine, and its version."""
        return Key(kernel.name, source_of(self._writer), signature, DEVICE, {"toy": VERSION}, mode)

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Program:
        """The program; one that needs too many registers is refused here, before it meets the device."""
        return self._writer(**config)

    def load(self, kernel: Kernel, artifact: Program) -> Launch:
        """The program, ready for arrays."""
        return ToyLaunch(artifact)

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> ToyTimer:
        """The launch bound to its arguments, on the machine's own clock."""
        assert isinstance(launch, ToyLaunch)
        return ToyTimer(launch, args)


class ToyLaunch:
    """A program to be called with arrays."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def __call__(self, *arrays: Any) -> int:
        return self._program.run(arrays)


class ToyTimer:
    """Times launches by the cycles that the machine counts: the same each time, so one run tells them all."""

    clock = "toy cycles"

    def __init__(self, launch: ToyLaunch, args: Sequence[Any]) -> None:
        self._seconds = launch(*args) / HERTZ

    def __call__(self, count: int) -> float:
        return count * self._seconds

    def flush(self, *, whole: bool) -> None:
        """There are no caches."""
