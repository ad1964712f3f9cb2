"""A vector processor interpreted in numpy, with its own clock; takes the place of an accelerator and its driver.

It has 16 vector registers of 8 lanes, issues one instruction at a time, in order, and waits for operands: a load takes
12 cycles, arithmetic 4. Longer vectors take several registers and as many cycles to issue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tunewright.errors import TunewrightError
from tunewright.model.device import Device

LANES, REGISTERS, HERTZ = 8, 16, 1e9
LATENCY = {"load": 12, "store": 1, "fma": 4, "set": 1}
VERSION = "1.0"

DEVICE = Device(
    kind="toy", model="Toy 8", architecture="toy1", features=("fma",), limits={"lanes": LANES, "registers": REGISTERS}
)


class Refused(TunewrightError):
    """A program that this machine cannot run."""


@dataclass(frozen=True)
class Instruction:
    """One step: `load to, array, offset`, `store from, array, offset`, `fma to, a, b` (to += a b), `set to, number`."""

    name: str
    register: int
    operands: tuple[float, ...]


@dataclass(frozen=True)
class Program:
    """The body of a loop over elements: its instructions, the length of its vectors, and elements per iteration."""

    body: tuple[Instruction, ...]
    width: int
    step: int

    def __post_init__(self) -> None:
        needed = len({one.register for one in self.body}) * -(-self.width // LANES)
        if needed > REGISTERS:
            raise Refused(f"{needed} registers are needed, and the machine has {REGISTERS}; add a Rule")

    @property
    def cycles(self) -> int:
        """The cycles of one iteration: instructions in order, each when its operands are ready."""
        now, ready = 0, dict.fromkeys(range(REGISTERS), 0)
        for one in self.body:
            reads = [one.register, *map(int, one.operands)] if one.name == "fma" else [one.register]
            start = now if one.name in ("load", "set") else max([now, *(ready[r] for r in reads)])
            now = start + -(-self.width // LANES)
            ready[one.register] = start + LATENCY[one.name]
        return now + 2  # the loop itself

    def run(self, arrays: Sequence[Any]) -> int:
        """Runs all iterations at once; returns the cycles."""
        size = arrays[0].size
        if size % self.step:
            raise Refused(f"{size} elements are no multiple of {self.step}; choose a smaller vector or less unrolling")
        turns = size // self.step
        held: dict[int, Any] = {}
        for one in self.body:
            if one.name == "set":
                held[one.register] = np.float32(one.operands[0])
            elif one.name == "fma":
                a, b = (held[int(r)] for r in one.operands)
                held[one.register] = held[one.register] + a * b
            else:
                which, offset = map(int, one.operands)
                there = arrays[which].reshape(turns, self.step)[:, offset : offset + self.width]
                if one.name == "load":
                    held[one.register] = there.copy()
                else:
                    there[...] = held[one.register]
        return turns * self.cycles
