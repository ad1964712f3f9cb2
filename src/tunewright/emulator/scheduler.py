"""Runs the groups of a batch in an order that is chosen to hurt.

A real device may run the warps of a block in any order between barriers. `ascending` and `descending` let each warp
run as far as it can before the next starts; `random` shuffles and interrupts them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tunewright.backends.grid_launch import WARP
from tunewright.emulator.faults import FaultKind, KernelFault, PtxFault
from tunewright.emulator.group import RUNNING, WAITING, Group
from tunewright.emulator.machine import Machine

ORDERS = ("ascending", "descending", "random")
INTERRUPT = 0.3
"""How often, in random order, a warp is interrupted after a piece of code."""


class Scheduler:
    """Executes the groups of one machine."""

    def __init__(self, machine: Machine, order: str, seed: int, step_limit: int) -> None:
        self._machine, self._order, self._limit = machine, order, step_limit
        self._random = np.random.default_rng(seed)
        self._rows = np.zeros(len(machine.program.pieces) + 1, np.int64)
        self._partial = np.zeros_like(self._rows)

    def run(self) -> None:
        """Runs until all have exited."""
        with np.errstate(all="ignore"):
            try:
                while self._pass():
                    pass
                self._check_all_exited()
            finally:
                self._count()

    def _pass(self) -> bool:
        slots = np.arange(self._machine.slots)
        if self._order == "descending":
            slots = slots[::-1]
        elif self._order == "random":
            self._random.shuffle(slots)
        progressed = False
        for slot in slots:
            group = self._machine.groups[slot]
            if group.uniform >= 0 or (group.state == RUNNING).any():
                self._run_group(group)
                progressed = True
        return progressed

    def _run_group(self, group: Group) -> None:
        pieces, interrupts = self._machine.program.pieces, self._order == "random"
        while (selected := group.select()) is not None:
            number, mask = selected
            if number >= len(pieces):
                raise self._machine.fault(group, FaultKind.OUT_OF_BOUNDS, "the kernel ends without `ret`")
            piece = pieces[number]
            group.mask = mask
            self._note(number, group, mask)
            for step in piece.steps:
                step(group)
            group.steps += piece.last - piece.first
            if group.steps > self._limit:
                group.at = piece.first
                raise self._machine.fault(
                    group,
                    FaultKind.STEP_LIMIT,
                    f"a warp executed more than {self._limit:,} instructions; the loop may not end",
                )
            if piece.end(group, mask, number + 1):
                return
            if interrupts and self._random.random() < INTERRUPT:
                return

    def _note(self, number: int, group: Group, mask: Any) -> None:
        if mask is True:
            self._rows[number] += group.blocks
            return
        active = mask.reshape(-1, WARP)
        some = active.any(axis=1)
        self._rows[number] += int(some.sum())
        self._partial[number] += int((some & ~active.all(axis=1)).sum())

    def _count(self) -> None:
        counts = self._machine.counters.by_instruction
        for number, piece in enumerate(self._machine.program.pieces):
            counts["warp_instructions"][piece.first : piece.last] += self._rows[number]
            counts["divergent"][piece.first : piece.last] += self._partial[number]

    def _check_all_exited(self) -> None:
        for group in self._machine.groups:
            if (group.state == WAITING).any():
                raise KernelFault(self._deadlock(group))

    def _deadlock(self, group: Group) -> PtxFault:
        number = int(group.pc[group.state == WAITING][0])
        group.at = max(self._machine.program.pieces[number].first - 1, 0) if number else 0
        return self._machine.fault(
            group,
            FaultKind.DIVERGENT_BARRIER,
            "warps wait at this barrier for others of their block that wait elsewhere or never come",
        ).fault
