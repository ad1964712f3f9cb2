"""Finds races: for each small piece of memory, who wrote and read it last, and whether the next access is ordered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tunewright.emulator.clocks import Clocks
from tunewright.emulator.faults import FaultKind
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.group import Group
    from tunewright.emulator.machine import Machine


Changed = Callable[[], Array] | None
"""Tells which accesses store another value than is there: equal values do not race."""


def _pieces(flat: Array, size: int, grain: int) -> Array:
    """Returns the numbers of the pieces that accesses cover, a row for each access."""
    first = flat >> (grain.bit_length() - 1)
    return np.asarray(first[:, None] + np.arange(max(size // grain, 1)))


class SharedShadow:
    """What happened to shared memory: per piece the last write, the last read of every warp, and what is under way."""

    def __init__(self, machine: Machine, size: int, grain: int, clocks: Clocks) -> None:
        self._machine, self._grain, self._clocks = machine, grain, clocks
        pieces = max(size // grain, 1)
        self._writer = np.zeros(pieces, np.int16)  # slot + 1
        self._written = np.zeros(pieces, np.int32)
        self._write_at = np.zeros(pieces, np.int32)
        self._read = np.zeros((pieces, clocks.slots), np.int32)
        self._last_read = np.zeros(pieces, np.int32)
        self._read_at = np.zeros(pieces, np.int32)
        self._pending = np.zeros(pieces, np.int32)  # instruction of an asynchronous copy + 1
        self._valid = np.zeros(pieces, np.bool_)

    def read(self, group: Group, flat: Array, size: int, rows: Array) -> None:
        """Checks and notes reads of the rows given."""
        pieces = _pieces(flat, size, self._grain)
        self._check_pending(group, pieces)
        if not self._valid[pieces].all():
            self._machine.note(group, FaultKind.UNINITIALIZED, "this reads shared memory that nothing wrote")
        conflict = self._unordered_write(group, pieces, rows)
        if conflict is not None:
            other = int(self._write_at[pieces][conflict][0])
            self._machine.note(group, FaultKind.RACE, "a read of shared memory races with a write of another warp; "
                               "a barrier is missing between them", other)  # fmt: skip
        clock = self._clocks.own[rows][:, None]
        self._read[pieces, group.slot] = clock
        self._last_read[pieces] = np.maximum(self._last_read[pieces], clock)
        self._read_at[pieces] = group.at

    def write(
        self, group: Group, flat: Array, size: int, rows: Array, changed: Changed = None, *, atomic: bool = False
    ) -> None:
        """Checks and notes writes; atomics do not race with atomics."""
        pieces = _pieces(flat, size, self._grain)
        self._check_pending(group, pieces)
        self._check_write(group, pieces, rows, changed, atomic=atomic)
        self._mark_written(group, pieces, rows)

    def _mark_written(self, group: Group, pieces: Array, rows: Array) -> None:
        self._writer[pieces] = group.slot + 1
        self._written[pieces] = self._clocks.own[rows][:, None]
        self._write_at[pieces] = group.at
        self._valid[pieces] = True

    def begin_copy(self, group: Group, flat: Array, size: int, rows: Array) -> None:
        """Notes that an asynchronous copy to these places began."""
        pieces = _pieces(flat, size, self._grain)
        self._check_pending(group, pieces)
        self._check_write(group, pieces, rows, None)
        self._pending[pieces] = group.at + 1

    def end_copy(self, group: Group, flat: Array, size: int, rows: Array, clock: int | None = None) -> None:
        """Notes that an asynchronous copy is complete, at a clock or now."""
        pieces = _pieces(flat, size, self._grain)
        self._pending[pieces] = 0
        self._mark_written(group, pieces, rows)
        if clock is not None:
            self._written[pieces] = clock

    def _check_pending(self, group: Group, pieces: Array) -> None:
        pending = self._pending[pieces]
        if pending.any():
            other = int(pending[pending > 0][0]) - 1
            self._machine.note(group, FaultKind.MISSING_WAIT, "an asynchronous copy to this place is not complete; "
                               "a wait is missing", other)  # fmt: skip

    def _check_write(self, group: Group, pieces: Array, rows: Array, changed: Changed, *, atomic: bool = False) -> None:
        conflict = self._unordered_write(group, pieces, rows)
        if conflict is not None and atomic:
            conflict &= ~self._machine.is_atomic[self._write_at[pieces]]
        elif conflict is not None and changed is not None:
            conflict &= changed()[:, None]
        if conflict is not None and conflict.any():
            other = int(self._write_at[pieces][conflict][0])
            self._machine.note(
                group, FaultKind.RACE, "two warps write the same shared memory without a barrier between", other
            )
        if int(self._last_read[pieces].max(initial=0)) <= self._clocks.floor(group.slot):
            return
        known = self._clocks.knows_block(rows)[:, None, :]
        late = self._read[pieces] > known
        late[:, :, group.slot] = False
        late = np.asarray(late.any(axis=2))
        if late.any():
            other = int(self._read_at[pieces][late][0])
            self._machine.note(
                group,
                FaultKind.RACE,
                "a write to shared memory races with a read of another warp; a barrier is missing between them",
                other,
            )

    def _unordered_write(self, group: Group, pieces: Array, rows: Array) -> Array | None:
        written = self._written[pieces]
        if int(written.max(initial=0)) <= self._clocks.floor(group.slot):
            return None
        writer = self._writer[pieces]
        foreign = (writer > 0) & (writer != group.slot + 1)
        if not foreign.any():
            return None
        blocks = self._clocks.blocks
        rows = np.broadcast_to(rows[:, None], pieces.shape)
        others = np.where(foreign, (writer.astype(np.int64) - 1) * blocks + rows % blocks, rows)
        conflict = foreign & (self._clocks.knows(rows, others) < written)
        return conflict if conflict.any() else None


class GlobalShadow:
    """What happened to global memory: per piece the last write and the last two readers, over all batches."""

    def __init__(self, size: int, grain: int) -> None:
        pieces = size // grain + 1
        self._grain = grain
        # Rows are counted from 1 over all batches; zeros stay untouched pages.
        self._events = {
            who: (np.zeros(pieces, np.int32), np.zeros(pieces, np.int32), np.zeros(pieces, np.int32))
            for who in ("write", "read", "read2")
        }

    def written(self, start: int, stop: int) -> Array:
        """Returns which bytes of a range were written."""
        pieces = np.arange(start, stop) >> (self._grain.bit_length() - 1)
        return np.asarray(self._events["write"][0][pieces] > 0)

    def read(self, group: Group, flat: Array, size: int, rows: Array) -> None:
        """Checks and notes reads."""
        pieces = _pieces(flat, size, self._grain)
        first = group.machine.first_row
        conflict = self._unordered(group, "write", pieces, rows)
        if conflict is not None:
            self._report_read(group, "write", pieces, conflict, rows)
        who, _, _ = self._events["read"]
        other = (who[pieces] > 0) & (who[pieces] != (rows + first + 1)[:, None])
        if other.any():
            moved = pieces[other]
            for new, old in zip(self._events["read2"], self._events["read"], strict=True):
                new[moved] = old[moved]
        self._mark(group, "read", pieces, rows)

    def write(
        self, group: Group, flat: Array, size: int, rows: Array, changed: Changed = None, *, atomic: bool = False
    ) -> None:
        """Checks and notes writes; atomics do not race with atomics."""
        pieces = _pieces(flat, size, self._grain)
        conflict = self._unordered(group, "write", pieces, rows)
        if conflict is not None:
            if atomic:
                conflict &= ~group.machine.is_atomic[self._events["write"][2][pieces]]
            elif changed is not None:
                conflict &= changed()[:, None]
            self._report(group, "write", pieces, conflict)
        for who in ("read", "read2"):
            conflict = self._unordered(group, who, pieces, rows)
            if conflict is not None and changed is not None:
                conflict &= changed()[:, None]
            if conflict is not None:
                self._report_read(group, who, pieces, conflict, rows)
        self._mark(group, "write", pieces, rows)

    def _mark(self, group: Group, who: str, pieces: Array, rows: Array) -> None:
        row, clock, at = self._events[who]
        row[pieces] = (rows + group.machine.first_row + 1)[:, None]
        clock[pieces] = group.machine.clocks.own[rows][:, None]
        at[pieces] = group.at

    def _unordered(self, group: Group, who: str, pieces: Array, rows: Array) -> Array | None:
        row, clock, _ = self._events[who]
        first, held = group.machine.first_row, row[pieces]
        if not held.any():
            return None
        other = held.astype(np.int64) - 1 - first
        mine = np.broadcast_to(rows[:, None], pieces.shape)
        foreign = (other != mine) & (other >= -first)
        if not foreign.any():
            return None
        now = foreign & (other >= 0)
        clocks = group.machine.clocks
        known = clocks.knows(mine, np.where(now, other, mine))
        # Blocks of an earlier batch ran before, but only by chance; an acquired lock orders them too.
        earlier = foreign & (other < 0) & (first > group.machine.ordered_before[mine])
        conflict = earlier | (now & (known < clock[pieces]))
        return conflict if conflict.any() else None

    def _report_read(self, group: Group, who: str, pieces: Array, conflict: Array, rows: Array) -> None:
        """Reports races of a read and a write; those of a load with a store of its own block are set aside."""
        machine, blocks = group.machine, group.machine.clocks.blocks
        row, _, at = self._events[who]
        mine, other = np.broadcast_to(rows[:, None], pieces.shape), row[pieces].astype(np.int64) - 1 - machine.first_row
        readers, loads = (mine, np.full(pieces.shape, group.at)) if who == "write" else (other, at[pieces])
        within = (other >= 0) & (other % blocks == mine % blocks)
        aside = conflict & within & machine.program.is_load[loads]
        self._report(group, who, pieces, conflict & ~aside)
        if aside.any():
            machine.doubt(group, _race_message(who), int(at[pieces][aside][0]), (loads[aside], readers[aside]))

    def _report(self, group: Group, who: str, pieces: Array, conflict: Array) -> None:
        if conflict.any():
            other = int(self._events[who][2][pieces][conflict][0])
            group.machine.note(group, FaultKind.RACE, _race_message(who), other)


def _race_message(who: str) -> str:
    verb = "write" if who == "write" else "read"
    return f"this access to global memory races with a {verb} of another warp or block"
