"""Figures of a compiled kernel: what one block does on average, and how long one warp would need by itself.

Inner blocks and those at the edges of a grid do different work, so one of each kind is executed, and they count by how
many there are; kinds of which there are few are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from tunewright.backends.grid_launch import GridLaunch, Shape
from tunewright.emulator.counters import Counters, pipe_of
from tunewright.emulator.inlining import inline_calls
from tunewright.emulator.launch import Options, emulate
from tunewright.emulator.ptx_text import Instruction, Module, PtxKernel

_REGISTER = re.compile(r"%[A-Za-z_][\w$]*(?:@\w+)*")

LATENCIES = {
    "float": 4, "integer": 5, "move": 0, "convert": 6, "special": 20, "shared": 25, "global": 250, "local": 60,
    "const": 8, "param": 0, "shuffle": 24, "tensor": 20, "barrier": 20, "atomic": 250, "copy": 20, "control": 4,
}  # fmt: skip
"""Cycles until a result can be used, in round numbers of published microbenchmarks; ptxas removes moves."""

MIN_SHARE = 0.02
"""Share of all blocks below which those at an edge are not executed."""

_NO_RESULT = {"st", "bra", "bar", "barrier", "ret", "exit", "red", "fence", "membar", "cp"}


class BlockFigures(msgspec.Struct, frozen=True):
    """What an average block of a launch does: counts by name, and the cycles of one warp without any other."""

    grid: Shape
    warps: int
    counts: dict[str, float]
    warp_cycles: float
    repeats: float = 1.0
    """How often the executed part runs in the real launch, where a long loop was cut short."""


def block_figures(
    module: Module, kernel: str, launch: GridLaunch, args: Sequence[Any], options: Options | None = None
) -> BlockFigures:
    """Executes up to three blocks of a launch and returns the figures of an average one; faults are ignored."""
    code = inline_calls(module.kernel(kernel), module.functions)
    options = options or Options(races=False, caches=True)
    counts: dict[str, float] = {}
    cycles, total = 0.0, 0
    for block, weight in representative_blocks(launch.grid).items():
        done = emulate(module, launch, args, replace(options, blocks=(block,)), kernel)
        for name, count in done.counters.totals().items():
            counts[name] = counts.get(name, 0.0) + weight * count
        cycles += weight * _warp_cycles(code, done.counters, launch.warps)
        total += weight
    return BlockFigures(
        launch.grid, launch.warps, {name: count / total for name, count in counts.items()}, cycles / total
    )


def representative_blocks(grid: Shape) -> Mapping[Shape, int]:
    """Returns an inner block, one of the last column and one of the last row, each with how many it stands for."""
    x, y, _ = grid
    middle = tuple((size - 1) // 2 for size in grid)
    chosen: dict[Shape, int] = {}
    for block, weight in (
        ((middle[0], middle[1], middle[2]), max(x - 1, 1) * max(y - 1, 1)),
        ((x - 1, middle[1], middle[2]), max(y - 1, 1)),
        ((middle[0], y - 1, middle[2]), max(x - 1, 1)),
    ):
        if block not in chosen and (not chosen or weight >= MIN_SHARE * x * y):
            chosen[block] = weight
    return chosen


def _warp_cycles(code: PtxKernel, counters: Counters, warps: int) -> float:
    """Returns the cycles of one warp: the longest chain of dependent instructions of each basic block, as executed."""
    executed = counters.by_instruction["warp_instructions"]
    starts = sorted({0, *code.labels.values()} | {i + 1 for i, item in enumerate(code.instructions) if _ends(item)})
    cycles = 0.0
    for first, last in zip(starts, [*starts[1:], len(code.instructions)], strict=True):
        if first < last and executed[first]:
            cycles += _chain(code.instructions[first:last]) * float(executed[first]) / warps
    return cycles


def _ends(item: Instruction) -> bool:
    return item.opcode in ("bra", "ret", "exit", "bar", "barrier")


def _chain(instructions: Sequence[Instruction]) -> float:
    """Returns the cycles of a basic block whose instructions start as soon as what they use is there."""
    ready: dict[str, float] = {}
    longest = float(len(instructions))
    for item in instructions:
        names = [_REGISTER.findall(operand) for operand in item.operands]
        has_result = item.opcode not in _NO_RESULT and names
        used = [name for operand in (names[1:] if has_result else names) for name in operand]
        used += _REGISTER.findall(item.guard)
        start = max((ready.get(name, 0.0) for name in used), default=0.0)
        end = start + LATENCIES[pipe_of(item)]
        for name in names[0] if has_result else ():
            ready[name] = end
        longest = max(longest, end)
    return longest
