"""What every access to memory goes through: which memory it is, what is counted, and what the race check is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tunewright.emulator.faults import FaultKind
from tunewright.emulator.memory import LOCAL_WINDOW, SHARED_WINDOW, Memory
from tunewright.emulator.ptx_text import Instruction
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.group import Group

_SPACES = ("shared", "local", "global", "const", "param")


def space_of(item: Instruction) -> str:
    """Returns the memory that an instruction names; empty for generic addresses."""
    for word in item.modifiers:
        if word.split("::")[0] in _SPACES:
            return word.split("::", maxsplit=1)[0]
    return ""


def memories(group: Group, space: str, address: Array) -> Iterator[Memory]:
    """Yields the memory of the active lanes; generic addresses may be in several, each with its lanes masked in."""
    machine = group.machine
    if space:
        yield {"shared": machine.shared, "local": machine.local}.get(space, machine.memory)
        return
    where = group.full(address).astype(np.uint64)
    local = where >= np.uint64(LOCAL_WINDOW)
    shared = ~local & (where >= np.uint64(SHARED_WINDOW))
    parts: tuple[tuple[Array, Memory], ...] = (
        (local, machine.local),
        (shared, machine.shared),
        (~local & ~shared, machine.memory),
    )
    for lanes, memory in parts:
        with masked(group, lanes) as some:
            if some:
                yield memory


@contextmanager
def masked(group: Group, lanes: Array) -> Iterator[bool]:
    """Restricts the active lanes for a while; gives whether any is left."""
    saved = group.mask
    mask = lanes if saved is True else lanes & saved
    group.mask = True if mask.all() else mask
    try:
        yield bool(mask.any())
    finally:
        group.mask = saved


def rows_of(group: Group) -> Array:
    """Returns the rows of the active lanes."""
    return np.asarray(group.row if group.mask is True else group.row[group.mask])


def observe_read(group: Group, memory: Memory, flat: Array, size: int, *, strong: bool = False) -> None:
    """Counts a read, and checks it for races unless it is a strong one."""
    machine = group.machine
    if memory is machine.memory:
        machine.counters.add_global(group, flat, size, store=False)
        if machine.global_shadow is not None and not strong:
            machine.global_shadow.read(group, flat, size, rows_of(group))
    elif memory is machine.shared:
        machine.counters.add_shared(group, flat, size)
        if machine.shared_shadow is not None and not strong:
            machine.shared_shadow.read(group, flat, size, rows_of(group))


def observe_write(
    group: Group, memory: Memory, flat: Array, size: int, changed: Callable[[], Array] | None, *, strong: bool = False
) -> None:
    """Counts a write, and checks it for races."""
    machine = group.machine
    if memory is machine.memory:
        machine.counters.add_global(group, flat, size, store=True)
        if machine.global_shadow is not None:
            machine.global_shadow.write(group, flat, size, rows_of(group), changed, atomic=strong)
    elif memory is machine.shared:
        machine.counters.add_shared(group, flat, size)
        if machine.shared_shadow is not None:
            machine.shared_shadow.write(group, flat, size, rows_of(group), changed, atomic=strong)


def store_checked(group: Group, memory: Memory, flat: Array, values: Array, *, strong: bool = False) -> None:
    """Stores a row of elements for each active lane, and reports lanes that store different values to one place."""
    size = values.dtype.itemsize * values.shape[1]

    def changed() -> Array:
        return np.asarray((memory.load(flat, values.dtype.itemsize, values.shape[1]) != values).any(axis=1))

    observe_write(group, memory, flat, size, changed, strong=strong)
    memory.store(flat, values)
    # Threads of a warp may hold copies of one sum that differ in the last bit; in shared memory that is common.
    if memory is group.machine.memory and group.machine.global_shadow is not None and changed().any():
        group.machine.note(
            group, FaultKind.RACE, f"threads store different values to one place of {memory.name} memory"
        )


def active_rows(group: Group) -> Array:
    """Returns the warps that are active, all of whose lanes must be: instructions of a whole warp need that."""
    active = group.active()
    some, whole = active.any(axis=1), active.all(axis=1)
    if (some & ~whole).any():
        raise group.machine.fault(
            group, FaultKind.DIVERGENT_WARP, "some threads of a warp do not execute this instruction, which needs all"
        )
    return np.asarray(whole)


def sync_key(memory: Any, flat: int) -> tuple[str, int]:
    """Returns the name of a place in memory for the clocks."""
    return str(memory.name), int(flat)
