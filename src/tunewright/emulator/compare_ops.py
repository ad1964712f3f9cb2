"""`setp`, `set`, `selp` and `slct`: comparisons and choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tunewright.emulator import types
from tunewright.emulator.builders import builds
from tunewright.emulator.faults import UnsupportedInstruction
from tunewright.emulator.float_ops import FORMATS, flush
from tunewright.emulator.integer_ops import computed, last_type
from tunewright.emulator.memory import LOCAL_WINDOW, SHARED_WINDOW
from tunewright.emulator.operands import Operands, Step
from tunewright.emulator.ptx_text import Instruction
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.group import Group

Comparison = Callable[[Array, Array], Array]


def _either_nan(a: Array, b: Array) -> Array:
    return np.asarray(np.isnan(a) | np.isnan(b))


_ORDERED: dict[str, Comparison] = {
    "eq": np.equal, "ne": lambda a, b: (a != b) & ~_either_nan(a, b), "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "num": lambda a, b: ~_either_nan(a, b), "nan": _either_nan,
    "equ": lambda a, b: (a == b) | _either_nan(a, b), "neu": np.not_equal,
    "ltu": lambda a, b: ~(a >= b), "leu": lambda a, b: ~(a > b), "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
}  # fmt: skip

_INTEGER: dict[str, Comparison] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip

_COMBINE = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _comparison(item: Instruction, kind: str) -> tuple[str, Callable[[Array], Array], Comparison]:
    """Returns the type of the registers, how they are decoded, and the comparison."""
    floats = kind in FORMATS
    table = _ORDERED if floats else _INTEGER
    name = next((word for word in item.modifiers if word in table), "")
    if not name or "x2" in kind:
        raise UnsupportedInstruction(item.place, "its comparison")
    if not floats:
        return kind, lambda a: a, table[name]
    decode = FORMATS[kind].decode
    return FORMATS[kind].register, (lambda a: flush(decode(a))) if item.has("ftz") else decode, table[name]


@builds("setp")
def set_predicate(ops: Operands, item: Instruction) -> Step:
    """`setp`: compares, and combines the result with a predicate."""
    register, decode, compare = _comparison(item, last_type(item))
    left, right = (ops.read(item, text, register) for text in item.operands[1:3])
    names = item.operands[0].split("|")
    combine = next((_COMBINE[word] for word in item.modifiers if word in _COMBINE), None)
    other = ops.read(item, item.operands[3], "pred") if combine is not None else None
    writers = [ops.write(item, name.strip(), "pred") for name in names]

    def run(group: Group) -> None:
        found = compare(decode(left(group)), decode(right(group)))
        for write, result in zip(writers, (found, ~found), strict=False):
            if combine is not None and other is not None:
                result = combine(result, other(group))
            write(group, result)

    return run


@builds("set")
def set_value(ops: Operands, item: Instruction) -> Step:
    """`set`: compares; true is all ones, or 1.0 for floats."""
    result, source = types.types_of(item.modifiers)
    if source == "f16x2" and result == "f16x2" and not {*_COMBINE} & set(item.modifiers):
        form, both = FORMATS[source], _ORDERED[item.modifiers[0]]
        ones = lambda a, b: form.encode(both(form.decode(a), form.decode(b)).astype(np.float32))  # noqa: E731
        return computed(ops, item, ones, ["b32", "b32"], "b32")
    register, decode, compare = _comparison(item, source)
    if {*_COMBINE} & set(item.modifiers):
        raise UnsupportedInstruction(item.place)

    def run(a: Array, b: Array) -> Array:
        found = compare(decode(a), decode(b))
        return found.astype(np.float32) if result == "f32" else np.where(found, -1, 0)

    return computed(ops, item, run, [register, register], result)


def _choose(a: Array, b: Array, by: Array) -> Array:
    return np.where(by, a, b)


@builds("selp")
def select(ops: Operands, item: Instruction) -> Step:
    """`selp`: one of two values, by a predicate."""
    kind = last_type(item)
    raw = f"b{8 * types.width(kind)}"
    kind = kind if types.is_float(kind) else raw
    return computed(ops, item, _choose, [kind, kind, "pred"], kind)


@builds("slct")
def select_by_sign(ops: Operands, item: Instruction) -> Step:
    """`slct`: one of two values, by the sign of a third."""
    kind, by = types.types_of(item.modifiers)
    return computed(ops, item, lambda a, b, c: _choose(a, b, c >= 0), [kind, kind, by], kind)


@builds("isspacep")
def is_space(ops: Operands, item: Instruction) -> Step:
    """`isspacep`: whether a generic address is in a memory."""
    space = item.modifiers[0].split("::")[0]

    def run(a: Array) -> Array:
        shared = (a >= np.uint64(SHARED_WINDOW)) & (a < np.uint64(LOCAL_WINDOW))
        local = a >= np.uint64(LOCAL_WINDOW)
        return {"shared": shared, "local": local, "global": ~shared & ~local}[space]

    return computed(ops, item, run, ["u64"], "pred")
