"""The backend of the toy machine. A kernel is a function that writes a program for a config."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tunewright.backends.host import function_digest
from tunewright.model.key import Key
from tunewright.model.signature import CallSignature, Signature
from tunewright.ports.backend import Kernel, Launch
from tunewright.spaces.config import Config
from tunewright_toy.machine import DEVICE, HERTZ, VERSION, Program

Writer = Callable[..., Program]


class Toy:
    """Kernels for the toy machine: `writer` makes a program from the values of the knobs."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def signature(self, kernel: Kernel) -> CallSignature:
        """Returns how to compute the signature of a call."""
        return CallSignature.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """Returns the key: the writer's source, the device, and its version."""
        return Key(kernel.name, function_digest(self._writer), signature, DEVICE, {"toy": VERSION}, mode)

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Program:
        """Returns the program; one that needs too many registers is refused here, before it reaches the device."""
        return self._writer(**config)

    def load(self, kernel: Kernel, artifact: Program) -> Launch:
        """Returns the program as a launch."""
        return ToyLaunch(artifact)

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> ToyTimer:
        """Returns a timer of the launch with these arguments, on the machine's own clock."""
        assert isinstance(launch, ToyLaunch)
        return ToyTimer(launch, args)


class ToyLaunch:
    """A program that is called with arrays."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def __call__(self, *arrays: Any) -> int:
        return self._program.run(arrays)


class ToyTimer:
    """Times launches by the cycles that the machine counts; they never vary, so one run is enough."""

    clock = "toy cycles"

    def __init__(self, launch: ToyLaunch, args: Sequence[Any]) -> None:
        self._seconds = launch(*args) / HERTZ

    def __call__(self, count: int) -> float:
        return count * self._seconds

    def flush(self, *, whole: bool) -> None:
        """Does nothing: the machine has no caches."""
