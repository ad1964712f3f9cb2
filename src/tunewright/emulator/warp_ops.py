"""Instructions by which the threads of a warp exchange values: shuffles, votes, reductions, elections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tunewright.backends.grid_launch import WARP
from tunewright.emulator.builders import builds
from tunewright.emulator.faults import UnsupportedInstruction
from tunewright.emulator.integer_ops import last_type
from tunewright.emulator.operands import Operands, Step
from tunewright.emulator.ptx_text import Instruction
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.group import Group


@builds("shfl", located=True)
def shuffle(ops: Operands, item: Instruction) -> Step:
    """`shfl.sync`: each thread reads the register of another of its warp."""
    mode = item.modifiers[1]
    source = ops.read(item, item.operands[1], "b32")
    by, clamp = (ops.read(item, text, "u32") for text in item.operands[2:4])
    names = [name.strip() for name in item.operands[0].split("|")]
    write = ops.write(item, names[0], "b32")
    inside = ops.write(item, names[1], "pred") if len(names) > 1 else None

    def run(group: Group) -> None:
        lane = group.lane.reshape(-1, WARP)
        amount, limits = (group.full(read(group)).astype(np.int64).reshape(-1, WARP) for read in (by, clamp))
        chosen, valid = _source_lanes(mode, lane, amount & 31, limits)
        values = np.take_along_axis(group.full(source(group)).reshape(-1, WARP), chosen, axis=1)
        write(group, values.reshape(-1))
        if inside is not None:
            inside(group, valid.reshape(-1))

    return run


def _source_lanes(mode: str, lane: Array, amount: Array, limits: Array) -> tuple[Array, Array]:
    """Returns from which lane each lane reads, and whether that is inside of its segment."""
    segment, bound = limits >> 8 & 31, limits & 31
    highest = (lane & segment) | (bound & ~segment)
    chosen = {
        "up": lane - amount,
        "down": lane + amount,
        "bfly": lane ^ amount,
        "idx": (lane & segment) | (amount & ~segment),
    }[mode]
    valid = chosen >= highest if mode == "up" else chosen <= highest
    return np.where(valid, chosen, lane) & 31, valid


@builds("vote", located=True)
def vote(ops: Operands, item: Instruction) -> Step:
    """`vote.sync`: all, any, uniform or the ballot."""
    source = ops.read(item, item.operands[1], "pred")
    mode = next(word for word in item.modifiers if word in ("all", "any", "uni", "ballot"))
    write = ops.write(item, item.operands[0], "b32" if mode == "ballot" else "pred")
    weights = np.uint64(1) << np.arange(WARP, dtype=np.uint64)

    def run(group: Group) -> None:
        active = group.active()
        said = group.full(source(group)).reshape(-1, WARP)
        if mode == "ballot":
            result: Any = np.where(said & active, weights, np.uint64(0)).sum(axis=1)
        elif mode == "any":
            result = (said & active).any(axis=1)
        else:
            result = (said | ~active).all(axis=1)
            if mode == "uni":
                result |= ~(said & active).any(axis=1)
        write(group, np.repeat(result, WARP))

    return run


@builds("activemask", located=True)
def active_mask(ops: Operands, item: Instruction) -> Step:
    """`activemask`: the lanes that execute this now."""
    write = ops.write(item, item.operands[0], "b32")
    weights = np.uint64(1) << np.arange(WARP, dtype=np.uint64)

    def run(group: Group) -> None:
        write(group, np.repeat(np.where(group.active(), weights, np.uint64(0)).sum(axis=1), WARP))

    return run


@builds("redux", located=True)
def reduce(ops: Operands, item: Instruction) -> Step:
    """`redux.sync`: one value of all members."""
    kind = last_type(item)
    table: dict[str, tuple[Any, Any]] = {
        "add": (np.add, 0), "min": (np.minimum, None), "max": (np.maximum, None), "and": (np.bitwise_and, -1),
        "or": (np.bitwise_or, 0), "xor": (np.bitwise_xor, 0),
    }  # fmt: skip
    mode = next((word for word in item.modifiers if word in table), "")
    if kind == "f32" or not mode:
        raise UnsupportedInstruction(item.place)
    ufunc, neutral = table[mode]
    source = ops.read(item, item.operands[1], kind)
    members = ops.read(item, item.operands[2], "u32")
    write = ops.write(item, item.operands[0], kind)

    def run(group: Group) -> None:
        values = group.full(source(group)).reshape(-1, WARP)
        limits = np.iinfo(values.dtype)
        empty: dict[Any, Any] = {
            None: limits.max if mode == "min" else limits.min,
            -1: np.array(-1).astype(values.dtype),
            0: 0,
        }
        taken = (group.full(members(group)).reshape(-1, WARP) >> group.lane.reshape(-1, WARP).astype(np.uint32)) & 1
        taken = (taken == 1) & group.active()
        result = ufunc.reduce(np.where(taken, values, empty[neutral]).astype(values.dtype), axis=1)
        write(group, np.repeat(result, WARP))

    return run


@builds("match", located=True)
def match(ops: Operands, item: Instruction) -> Step:
    """`match.any.sync`: which lanes have the same value."""
    if not item.has("any"):
        raise UnsupportedInstruction(item.place)
    source = ops.read(item, item.operands[1], last_type(item))
    write = ops.write(item, item.operands[0], "b32")
    weights = np.uint64(1) << np.arange(WARP, dtype=np.uint64)

    def run(group: Group) -> None:
        values = group.full(source(group)).reshape(-1, WARP)
        same = (values[:, :, None] == values[:, None, :]) & group.active()[:, None, :]
        write(group, np.where(same, weights, np.uint64(0)).sum(axis=2).reshape(-1))

    return run


@builds("elect", located=True)
def elect(ops: Operands, item: Instruction) -> Step:
    """`elect.sync`: the lowest active lane is the leader."""
    names = [name.strip() for name in item.operands[0].split("|")]
    number, leader = ops.write(item, names[0], "b32"), ops.write(item, names[1], "pred")

    def run(group: Group) -> None:
        first = np.repeat(group.active().argmax(axis=1), WARP)
        number(group, first.astype(np.uint32))
        leader(group, group.lane == first)

    return run
