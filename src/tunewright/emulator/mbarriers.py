"""`mbarrier`: barriers in shared memory that count arrivals and bytes of tensor copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tunewright.emulator import access
from tunewright.emulator.builders import builds
from tunewright.emulator.faults import FaultKind, UnsupportedInstruction
from tunewright.emulator.operands import Operands, Step
from tunewright.emulator.ptx_text import Instruction

if TYPE_CHECKING:
    from tunewright.emulator.group import Group

SIZE = 8


@dataclass
class Mbarrier:
    """One barrier: arrivals it is for, those still missing, bytes still missing, its phase, and copies under way."""

    count: int
    missing: int
    bytes: int = 0
    phase: int = 0
    copies: list[Any] = field(default_factory=list)

    def settle(self) -> None:
        """Starts the next phase if nothing is missing."""
        if self.missing == 0 and self.bytes == 0:
            self.phase += 1
            self.missing = self.count


def find(group: Group, flat: int) -> Mbarrier:
    """Returns the barrier at a place."""
    found: Mbarrier | None = group.machine.mbarriers.get(flat)
    if found is None:
        raise group.machine.fault(group, FaultKind.UNINITIALIZED, "there is no mbarrier at this address")
    return found


@builds("mbarrier", located=True)
def mbarrier(ops: Operands, item: Instruction) -> Step:
    """`mbarrier.init`, `inval`, `arrive`, `expect_tx`, `try_wait` and `test_wait`."""
    kind = item.modifiers[0]
    if kind == "init":
        return _init(ops, item)
    if kind == "inval":
        return _invalidate(ops, item)
    if kind in ("arrive", "expect_tx"):
        return _arrive(ops, item)
    if kind in ("try_wait", "test_wait") and item.has("parity"):
        return _wait(ops, item)
    raise UnsupportedInstruction(item.place)


def _places(group: Group, address: Any, offset: int) -> list[tuple[int, int, int]]:
    """Returns lane, row and place of each active lane."""
    flat = group.machine.shared.locate(group, address, offset, SIZE)
    lanes = np.arange(group.size) if group.mask is True else np.flatnonzero(group.mask)
    return list(zip(lanes.tolist(), group.row[lanes].tolist(), flat.tolist(), strict=True))


def _init(ops: Operands, item: Instruction) -> Step:
    base, offset = ops.address(item, item.operands[0])
    count = ops.read(item, item.operands[1], "u32")

    def run(group: Group) -> None:
        counts = group.full(count(group))
        for lane, _, flat in _places(group, base(group), offset):
            group.machine.mbarriers[flat] = Mbarrier(int(counts[lane]), int(counts[lane]))
            group.machine.clocks.forget(access.sync_key(group.machine.shared, flat))

    return run


def _invalidate(ops: Operands, item: Instruction) -> Step:
    base, offset = ops.address(item, item.operands[0])

    def run(group: Group) -> None:
        for _, _, flat in _places(group, base(group), offset):
            find(group, flat)
            del group.machine.mbarriers[flat]

    return run


def _arrive(ops: Operands, item: Instruction) -> Step:
    if item.has("noComplete"):
        raise UnsupportedInstruction(item.place)
    at = next(number for number, text in enumerate(item.operands) if text.startswith("["))
    base, offset = ops.address(item, item.operands[at])
    amount = ops.read(item, item.operands[at + 1], "u32") if len(item.operands) > at + 1 else None
    if at and item.operands[0] != "_":
        raise UnsupportedInstruction(item.place, "the state of an mbarrier")
    expects, arrives = item.has("expect_tx"), item.has("arrive")

    def run(group: Group) -> None:
        amounts = group.full(amount(group)) if amount is not None else None
        for lane, row, flat in _places(group, base(group), offset):
            barrier, value = find(group, flat), 1 if amounts is None else int(amounts[lane])
            barrier.bytes += value if expects else 0
            if arrives:
                barrier.missing -= 1 if expects else value
                group.machine.clocks.release(access.sync_key(group.machine.shared, flat), row)
            barrier.settle()

    return run


def _wait(ops: Operands, item: Instruction) -> Step:
    base, offset = ops.address(item, item.operands[1])
    parity = ops.read(item, item.operands[2], "u32")
    write = ops.write(item, item.operands[0], "pred")

    def run(group: Group) -> None:
        parities, done = group.full(parity(group)), np.zeros(group.size, np.bool_)
        answers: dict[tuple[int, int], bool] = {}
        for lane, row, flat in _places(group, base(group), offset):
            key = row, flat
            if key not in answers:
                answers[key] = _try_wait(group, row, flat, int(parities[lane]))
            done[lane] = answers[key]
        write(group, done)

    return run


def _try_wait(group: Group, row: int, flat: int, parity: int) -> bool:
    """Delivers what is under way, as late as this, and says whether the phase of that parity is over."""
    barrier, machine = find(group, flat), group.machine
    key = access.sync_key(machine.shared, flat)
    for copied in barrier.copies:
        copied.deliver(group, key)
        barrier.bytes -= copied.size
    if barrier.copies:
        barrier.copies.clear()
        barrier.settle()
    if barrier.phase % 2 == parity:
        return False
    machine.clocks.acquire(key, row)
    return True
