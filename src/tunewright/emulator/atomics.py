"""`atom` and `red`: read-modify-write of one place, in some order of the threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tunewright.emulator import access, types
from tunewright.emulator.builders import builds
from tunewright.emulator.faults import UnsupportedInstruction
from tunewright.emulator.float_ops import FORMATS
from tunewright.emulator.integer_ops import last_type
from tunewright.emulator.memory import Memory
from tunewright.emulator.memory_ops import acquire_rows, release_rows
from tunewright.emulator.operands import Operands, Step
from tunewright.emulator.ptx_text import Instruction
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.group import Group

Update = Callable[..., Array]


def _compare_and_swap(old: Array, expected: Array, new: Array) -> Array:
    return np.where(old == expected, new, old)


_UPDATES: dict[str, Update] = {
    "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "min": np.minimum,
    "max": np.maximum, "exch": lambda old, new: new, "cas": _compare_and_swap,
    "inc": lambda old, limit: np.where(old >= limit, 0, old + 1),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - 1),
}  # fmt: skip


def _update_of(item: Instruction, kind: str) -> tuple[Update, str]:
    """Returns how a place changes, and the type as which it is read."""
    name = next((word for word in item.modifiers if word in _UPDATES), "")
    if not name:
        raise UnsupportedInstruction(item.place)
    update = _UPDATES[name]
    if kind not in FORMATS or kind in ("f32", "f64"):
        return update, kind
    form = FORMATS[kind]
    return lambda old, new: form.encode(np.asarray(update(form.decode(old), form.decode(new)))), form.register


@builds("atom", "red", located=True)
def atomic(ops: Operands, item: Instruction) -> Step:
    """`atom` returns what was there; `red` does not."""
    if item.has("async"):
        raise UnsupportedInstruction(item.place)
    update, kind = _update_of(item, last_type(item))
    operands = item.operands if item.opcode == "atom" else ("_", *item.operands)
    target, address, *values = operands
    targets = ops.vector(target) if target != "_" else []
    groups = [ops.vector(value) for value in values]
    if item.has("L2::cache_hint"):
        groups = groups[:-1]
    base, offset = ops.address(item, address)
    scatters = [ops.scatter(item, name, kind) for name in targets]
    readers = [[ops.read(item, name, kind) for name in names] for names in groups]
    space, count = access.space_of(item), len(groups[0])

    def run(group: Group) -> None:
        where = base(group)
        for memory in access.memories(group, space, where):
            flat = memory.locate(group, where, offset, types.width(kind) * count)
            if not flat.size:
                continue
            _observe(group, memory, flat, types.width(kind) * count)
            lanes = group.lanes()
            parts = [np.stack([group.full(read(group)) for read in each], axis=1) for each in readers]
            old = _apply(group, memory, flat, update, [part if lanes is None else part[lanes] for part in parts])
            for number, scatter in enumerate(scatters):
                scatter(group, lanes, np.ascontiguousarray(old[:, number]).view(types.UNSIGNED[types.width(kind)]))

    return run


def _observe(group: Group, memory: Memory, flat: Array, size: int) -> None:
    """Counts and checks an atomic; one that a single thread of a warp executes may be a lock, and orders warps."""
    access.observe_write(group, memory, flat, size, lambda: np.ones(flat.size, np.bool_), strong=True)
    lone = group.active().sum(axis=1) == 1
    if lone.any() and lone.sum() == flat.size:
        acquire_rows(group, memory, flat)
        release_rows(group, memory, flat)


def _apply(group: Group, memory: Memory, flat: Array, update: Update, values: list[Array]) -> Array:
    """Applies updates one thread at a time where threads share a place; returns what each found."""
    raw: Any = types.UNSIGNED[values[0].dtype.itemsize]
    count = values[0].shape[1]
    found = np.zeros((flat.size, count), values[0].dtype)
    left = group.machine.shuffled(flat.size)
    while left.size:
        _, first = np.unique(flat[left], return_index=True)
        now = left[first]
        old = memory.load(flat[now], values[0].dtype.itemsize, count).view(values[0].dtype)
        found[now] = old
        new = np.asarray(update(old, *(value[now] for value in values))).astype(values[0].dtype).reshape(old.shape)
        memory.store(flat[now], np.ascontiguousarray(new).view(raw))
        left = np.delete(left, first)
    return found
