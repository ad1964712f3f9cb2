"""A kernel made executable: pieces of straight code, each a list of functions, and how each piece ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tunewright.backends.grid_launch import WARP
from tunewright.emulator import access
from tunewright.emulator.barriers import End, barrier_end
from tunewright.emulator.builders import BUILDERS, LOCATED
from tunewright.emulator.faults import UnsupportedInstruction
from tunewright.emulator.group import EXITED, Group
from tunewright.emulator.instructions import load_instructions
from tunewright.emulator.memory import SHARED_START
from tunewright.emulator.operands import Operands, Reader, Step
from tunewright.emulator.ptx_text import Instruction, PtxKernel, Variable
from tunewright.emulator.types import types_of, width
from tunewright.emulator.wmma import access_bytes

_CONTROL = {"bra", "ret", "exit", "trap"}
_BARRIERS = {"bar", "barrier"}
_STRONG = {"volatile", "relaxed", "acquire"}


@dataclass
class CodePiece:
    """Straight code: the instructions it has, what they do, and how it ends."""

    first: int
    last: int
    steps: list[Step]
    end: End


class Program:
    """A kernel for one launch."""

    def __init__(
        self, kernel: PtxKernel, symbols: Mapping[str, int], sizes: tuple[int, int], parameters: Mapping[str, bytes]
    ) -> None:
        load_instructions()
        self.kernel = kernel
        self.shared_size, self.local_size = sizes
        self.places = [item.place for item in kernel.instructions] or []
        self.is_atomic = np.array([_is_atomic(item) for item in kernel.instructions])
        self.is_load = np.array([item.opcode in ("ld", "ldu") for item in kernel.instructions])
        self.synchronizes_blocks = any(
            _is_atomic(item) and access.space_of(item) != "shared" for item in kernel.instructions
        )
        self.shared_grain = _grain(kernel.instructions, "shared")
        self.global_grain = _grain(kernel.instructions, "global")
        self._ops = Operands(kernel, symbols, parameters)
        self.kinds = self._ops.kinds
        self.pieces = self._compile()

    def _compile(self) -> list[CodePiece]:
        items = self.kernel.instructions
        starts = sorted(self._starts(items))
        number = {start: index for index, start in enumerate(starts)}
        pieces = []
        for start, stop in zip(starts, [*starts[1:], len(items)], strict=True):
            steps = [self._step(at, items[at]) for at in range(start, stop)]
            end = self._end(items[stop - 1], number)
            if end is not None:
                steps.pop()
                end = _located_end(stop - 1, end)
            else:
                end = _let_others_run if _may_spin(items[stop - 1]) else _fall_through
            pieces.append(CodePiece(start, stop, [step for step in steps if step], end))
        return pieces

    def _starts(self, items: Sequence[Instruction]) -> set[int]:
        starts = {0} | {at for at in self.kernel.labels.values() if at < len(items)}
        for at, item in enumerate(items[:-1]):
            if item.opcode in _CONTROL or _is_barrier(item) or _may_spin(item):
                starts.add(at + 1)
        return starts

    def _step(self, at: int, item: Instruction) -> Any:
        if item.opcode in _CONTROL or _is_barrier(item):
            return _unused
        if item.opcode in ("fence", "membar", "bar", "barrier", "pragma"):
            return None
        if item.opcode not in BUILDERS:
            raise UnsupportedInstruction(item.place)
        step = BUILDERS[item.opcode](self._ops, item)
        if item.opcode in LOCATED:
            step = _located(at, step)
        return _guarded(self._ops.read(item, item.guard, "pred"), step) if item.guard else step

    def _end(self, item: Instruction, number: Mapping[int, int]) -> End | None:
        end: End
        if item.opcode == "bra":
            end = self._branch(item, number)
        elif item.opcode in ("ret", "exit"):
            end = _exit
        elif item.opcode == "trap":
            raise UnsupportedInstruction(item.place)
        elif _is_barrier(item):
            end = barrier_end(self._ops, item)
        else:
            return None
        return _guarded_end(self._ops.read(item, item.guard, "pred"), end) if item.guard else end

    def _branch(self, item: Instruction, number: Mapping[int, int]) -> End:
        target = self.kernel.target(item, item.operands[0])
        landing = number.get(target, len(number))

        def end(group: Group, mask: Any, following: int) -> bool:
            group.jump(mask, landing)
            return False

        return end


def layout(variables: Sequence[Variable], dynamic: int) -> tuple[dict[str, int], int]:
    """Returns the addresses of shared variables and the bytes of all; those of open size come last."""
    at, found = SHARED_START, {}
    shared = [variable for variable in variables if variable.space == "shared"]
    for variable in sorted(shared, key=lambda variable: variable.size is None):
        at = -(-at // variable.align) * variable.align
        found[variable.name] = at
        at += dynamic if variable.size is None else variable.size
    return found, max(at - SHARED_START, dynamic)


def _is_atomic(item: Instruction) -> bool:
    return item.opcode in ("atom", "red") or (
        item.opcode in ("ld", "st") and bool({*_STRONG, "release"} & set(item.modifiers))
    )


def _may_spin(item: Instruction) -> bool:
    return _is_atomic(item) or (item.opcode == "mbarrier" and ("try_wait" in item.modifiers or item.has("test_wait")))


def _is_barrier(item: Instruction) -> bool:
    return item.opcode in _BARRIERS and not item.has("warp")


def _grain(items: Sequence[Instruction], space: str) -> int:
    """Returns the bytes of the smallest access to a memory."""
    sizes = [16]
    for item in items:
        where = access.space_of(item)
        if where not in ("", space) and item.opcode != "cp":
            continue
        if item.opcode in ("ld", "st", "atom", "red"):
            sizes.append(width(types_of(item.modifiers)[-1]))
        elif item.opcode == "wmma":
            sizes.append(access_bytes(item))
        elif item.opcode == "cp" and len(item.operands) >= 3 and item.operands[2][:1].isdigit():
            sizes.append(1 if len(item.operands) > 3 and space == "global" else int(item.operands[2], 0))
        elif item.opcode in ("cp", "tensormap") and item.has("tensor") | item.has("replace"):
            sizes.append(1)
    return min(sizes)


def _located(at: int, step: Step) -> Step:
    def run(group: Group) -> None:
        group.at = at
        step(group)

    return run


def _located_end(at: int, end: End) -> End:
    def run(group: Group, mask: Any, following: int) -> bool:
        group.at = at
        return end(group, mask, following)

    return run


def _guarded(guard: Reader, step: Step) -> Step:
    def run(group: Group) -> None:
        saved = group.mask
        mask = group.full(guard(group)) if saved is True else guard(group) & saved
        group.mask = True if mask.all() else mask
        if mask.any():
            step(group)
        group.mask = saved

    return run


def _guarded_end(guard: Reader, end: End) -> End:
    def run(group: Group, mask: Any, following: int) -> bool:
        taken = group.full(guard(group))
        taken = taken.copy() if mask is True else taken & mask
        if not taken.any():
            group.jump(mask, following)
            return False
        if taken.all():
            return end(group, True, following)
        left = ~taken if mask is True else mask & ~taken
        if left.any():
            group.jump(left, following)
        return end(group, taken, following)

    return run


def _unused(group: Group) -> None:
    """Stands for an instruction that ends a piece."""


def _fall_through(group: Group, mask: Any, following: int) -> bool:
    group.jump(mask, following)
    return False


def _let_others_run(group: Group, mask: Any, following: int) -> bool:
    group.jump(mask, following)
    group.rotates = True
    return True


def _exit(group: Group, mask: Any, following: int) -> bool:
    group.stop(mask, EXITED, following)
    exited = (group.state == EXITED).reshape(-1, WARP).all(axis=1)
    group.machine.barriers.exited[group.slot] = exited
    group.machine.barriers.release()
    return True
