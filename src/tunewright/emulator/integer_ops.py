"""Integer and bit instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tunewright.emulator import types
from tunewright.emulator.builders import builds
from tunewright.emulator.faults import UnsupportedInstruction
from tunewright.emulator.operands import Operands, Step
from tunewright.emulator.ptx_text import Instruction
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.group import Group


def binary(ops: Operands, item: Instruction, ufunc: Any, kind: str) -> Step:
    """Returns the step of an instruction with two sources of one type."""
    left, right = (ops.read(item, text, kind) for text in item.operands[1:3])
    out = ops.out(item, item.operands[0], kind)
    if out is None:
        return computed(ops, item, ufunc, [kind, kind], kind)
    return lambda group: ufunc(left(group), right(group), out=out(group), where=group.mask)


def computed(ops: Operands, item: Instruction, function: Callable[..., Array], sources: list[str], result: str) -> Step:
    """Returns the step of an instruction as a function of its sources."""
    readers = [ops.read(item, text, kind) for text, kind in zip(item.operands[1:], sources, strict=False)]
    write = ops.write(item, item.operands[0], result)

    def run(group: Group) -> None:
        write(group, function(*(read(group) for read in readers)))

    return run


def last_type(item: Instruction) -> str:
    """Returns the last type among an instruction's modifiers."""
    kinds = types.types_of(item.modifiers)
    if not kinds:
        raise UnsupportedInstruction(item.place, "no type")
    return kinds[-1]


def _saturated(kind: str, function: Any) -> Callable[[Array, Array], Array]:
    low, high = np.iinfo(types.dtype(kind)).min, np.iinfo(types.dtype(kind)).max
    return lambda a, b: np.clip(function(a.astype(np.int64), b.astype(np.int64)), low, high)


def add_sub(ops: Operands, item: Instruction) -> Step:
    """Integer `add` and `sub`."""
    kind = last_type(item)
    ufunc = np.add if item.opcode == "add" else np.subtract
    if item.has("sat"):
        return computed(ops, item, _saturated(kind, ufunc), [kind, kind], kind)
    if item.has("cc") or "x" in kind:
        raise UnsupportedInstruction(item.place)
    return binary(ops, item, ufunc, kind)


def _high(kind: str) -> Callable[[Array, Array], Array]:
    bits = 8 * types.width(kind)
    if bits < 64:
        wide: Any = np.int64 if types.is_signed(kind) else np.uint64
        return lambda a, b: (a.astype(wide) * b.astype(wide)) >> wide(bits)
    if types.is_signed(kind):
        return _signed_high
    return _unsigned_high


def _unsigned_high(a: Array, b: Array) -> Array:
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    other = a0 * b1 + (middle & low)
    return np.asarray(a1 * b1 + (middle >> half) + (other >> half))


def _signed_high(a: Array, b: Array) -> Array:
    a, b = np.broadcast_arrays(a, b)
    high = _unsigned_high(np.ascontiguousarray(a).view(np.uint64), np.ascontiguousarray(b).view(np.uint64))
    return np.asarray(high.view(np.int64) - np.where(a < 0, b, 0) - np.where(b < 0, a, 0))


def _widened(kind: str) -> Any:
    table = types.SIGNED if types.is_signed(kind) else types.UNSIGNED
    return table[2 * types.width(kind)]


def multiply(ops: Operands, item: Instruction) -> Step:
    """Integer `mul`: low half, high half or whole."""
    kind = last_type(item)
    if item.has("wide"):
        wide = _widened(kind)
        return computed(ops, item, lambda a, b: np.multiply(a, b, dtype=wide), [kind, kind], _wide_name(kind))
    if item.has("hi"):
        return computed(ops, item, _high(kind), [kind, kind], kind)
    return binary(ops, item, np.multiply, kind)


def _wide_name(kind: str) -> str:
    return f"{kind[0]}{16 * types.width(kind)}"


def multiply_add(ops: Operands, item: Instruction) -> Step:
    """Integer `mad`."""
    kind = last_type(item)
    if item.has("wide"):
        wide, name = _widened(kind), _wide_name(kind)
        return computed(ops, item, lambda a, b, c: np.multiply(a, b, dtype=wide) + c, [kind, kind, name], name)
    if item.has("hi"):
        high = _high(kind)
        return computed(ops, item, lambda a, b, c: high(a, b).astype(types.dtype(kind)) + c, [kind, kind, kind], kind)
    return computed(ops, item, lambda a, b, c: a * b + c, [kind, kind, kind], kind)


def divide(ops: Operands, item: Instruction) -> Step:
    """Integer `div` and `rem`, which round toward zero."""
    kind = last_type(item)
    minus_one = np.array(-1).astype(types.dtype(kind))

    def quotient(a: Array, b: Array) -> Array:
        safe = np.where(b == 0, 1, b).astype(a.dtype)
        whole = a // safe
        if a.dtype.kind == "i":
            whole = whole + ((a % safe != 0) & ((a < 0) != (b < 0)))
        return np.where(b == 0, minus_one, whole).astype(a.dtype)

    if item.opcode == "div":
        return computed(ops, item, quotient, [kind, kind], kind)
    return computed(ops, item, lambda a, b: a - quotient(a, b) * b, [kind, kind], kind)


@builds("and", "or", "xor")
def logic(ops: Operands, item: Instruction) -> Step:
    """`and`, `or` and `xor` of bits and predicates."""
    table = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    return binary(ops, item, table[item.opcode], last_type(item))


@builds("not", "cnot", "popc", "clz", "brev", "bfind")
def bits(ops: Operands, item: Instruction) -> Step:
    """Bit instructions with one source."""
    kind = last_type(item)
    size = 8 * types.width(kind)
    if item.opcode == "not":
        return computed(ops, item, np.invert, [kind], kind)
    if item.opcode == "cnot":
        return computed(ops, item, lambda a: a == 0, [kind], kind)
    if item.opcode == "popc":
        return computed(ops, item, np.bitwise_count, [kind], "u32")
    if item.opcode == "clz":
        return computed(ops, item, lambda a: size - _bit_length(a), [kind], "u32")
    if item.opcode == "brev":
        return computed(ops, item, lambda a: _reverse(a, size), [kind], kind)

    def highest(a: Array) -> Array:
        return _bit_length(np.where(a < 0, ~a, a).view(types.UNSIGNED[size // 8]) if types.is_signed(kind) else a)

    if item.has("shiftamt"):
        return computed(ops, item, lambda a: size - highest(a), [kind], "u32")
    return computed(ops, item, lambda a: (highest(a) - 1).astype(np.int64), [kind], "u32")


def _bit_length(a: Array) -> Array:
    length = np.zeros(a.shape, np.int64)
    rest = a.astype(np.uint64)
    for step in (32, 16, 8, 4, 2, 1):
        large = rest >= (np.uint64(1) << np.uint64(step))
        length += np.where(large, step, 0)
        rest = np.where(large, rest >> np.uint64(step), rest)
    return length + (rest > 0)


def _reverse(a: Array, size: int) -> Array:
    result = np.zeros_like(a)
    for bit in range(size):
        result |= ((a >> a.dtype.type(bit)) & a.dtype.type(1)) << a.dtype.type(size - 1 - bit)
    return result


@builds("shl", "shr")
def shift(ops: Operands, item: Instruction) -> Step:
    """`shl` and `shr`; a shift by the width or more leaves no bit but copies of the sign."""
    kind = last_type(item)
    size, wanted = 8 * types.width(kind), types.dtype(kind)
    ufunc: Any = np.left_shift if item.opcode == "shl" else np.right_shift
    amount = item.operands[2]
    if amount.isdecimal() and int(amount) < size:
        count = np.array([int(amount)], wanted)
        source, out = ops.read(item, item.operands[1], kind), ops.out(item, item.operands[0], kind)
        if out is not None:
            return lambda group: ufunc(source(group), count, out=out(group), where=group.mask)

    def run(a: Array, n: Array) -> Array:
        inside = ufunc(a, np.minimum(n, size - 1).astype(wanted))
        if item.opcode == "shr" and a.dtype.kind == "i":
            return np.asarray(inside)
        return np.asarray(np.where(n >= size, wanted(0), inside))

    return computed(ops, item, run, [kind, "u32"], kind)


@builds("shf")
def funnel_shift(ops: Operands, item: Instruction) -> Step:
    """`shf`: a shift of two registers side by side."""
    left, clamps = item.has("l"), item.has("clamp")

    def run(low: Array, high: Array, count: Array) -> Array:
        n = (np.minimum(count, 32) if clamps else count & np.uint32(31)).astype(np.uint64)
        both = low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))
        moved = (both << n) >> np.uint64(32) if left else (both >> n) & np.uint64(0xFFFFFFFF)
        return np.asarray(moved)

    return computed(ops, item, run, ["b32", "b32", "u32"], "b32")


@builds("bfe", "bfi", "bmsk")
def bit_field(ops: Operands, item: Instruction) -> Step:
    """`bfe` and `bfi`."""
    kind = last_type(item)
    size = 8 * types.width(kind)
    if item.opcode == "bfe":
        return computed(ops, item, lambda a, p, n: _extract(a, p, n, size), [kind, "u32", "u32"], kind)
    if item.opcode == "bmsk":
        raise UnsupportedInstruction(item.place)

    def insert(a: Array, b: Array, p: Array, n: Array) -> Array:
        position, count = p & 0xFF, np.minimum(n & 0xFF, size)
        ones = np.where(count >= 64, ~np.uint64(0), (np.uint64(1) << count.astype(np.uint64)) - np.uint64(1))
        field = np.where(position >= size, np.uint64(0), ones << np.minimum(position, 63).astype(np.uint64))
        moved = a.astype(np.uint64) << np.minimum(position, 63).astype(np.uint64)
        return np.asarray((b.astype(np.uint64) & ~field) | (moved & field))

    return computed(ops, item, insert, [kind, kind, "u32", "u32"], kind)


def _extract(a: Array, p: Array, n: Array, size: int) -> Array:
    """Returns a bit field, extended by zeros or by the sign of its highest bit."""
    position, count = (p & 0xFF).astype(np.int64), (n & 0xFF).astype(np.int64)
    raw = a.astype(types.SIGNED[size // 8]).view(types.UNSIGNED[size // 8]).astype(np.uint64)
    field = np.where(position >= size, 0, raw >> np.minimum(position, 63).astype(np.uint64))
    ones = np.where(
        count >= 64, ~np.uint64(0), (np.uint64(1) << np.minimum(count, 63).astype(np.uint64)) - np.uint64(1)
    )
    field = field.astype(np.uint64) & ones
    if a.dtype.kind != "i":
        return np.asarray(field)
    sign_at = np.minimum(position + count - 1, size - 1)
    sign = (raw >> np.clip(sign_at, 0, 63).astype(np.uint64)) & np.uint64(1)
    return np.where((sign == 1) & (count > 0), field | ~ones, field).view(np.int64)


@builds("prmt")
def permute(ops: Operands, item: Instruction) -> Step:
    """`prmt`: chooses four of eight bytes."""
    if types.types_of(item.modifiers) != ["b32"] or item.modifiers[-1] != "b32":
        raise UnsupportedInstruction(item.place, "a mode of prmt")

    def run(a: Array, b: Array, selector: Array) -> Array:
        both = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
        result: Any = np.uint64(0)
        for place in range(4):
            choice = (selector.astype(np.uint64) >> np.uint64(4 * place)) & np.uint64(15)
            byte = (both >> ((choice & np.uint64(7)) * np.uint64(8))) & np.uint64(0xFF)
            sign = np.where(byte >> np.uint64(7) == 1, np.uint64(0xFF), np.uint64(0))
            result = result | (np.where(choice >= 8, sign, byte) << np.uint64(8 * place))
        return np.asarray(result)

    return computed(ops, item, run, ["b32", "b32", "b32"], "b32")


@builds("lop3")
def logic3(ops: Operands, item: Instruction) -> Step:
    """`lop3`: any function of three bits, by its table."""
    table = int(item.operands[4], 0)

    def run(a: Array, b: Array, c: Array) -> Array:
        result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint32)
        for row in range(8):
            if table >> row & 1:
                parts = [x if row >> bit & 1 else ~x for x, bit in ((a, 2), (b, 1), (c, 0))]
                result |= parts[0] & parts[1] & parts[2]
        return result

    return computed(ops, item, run, ["b32", "b32", "b32"], "b32")


@builds("sad", "dp4a", "dp2a")
def dot_bytes(ops: Operands, item: Instruction) -> Step:
    """`sad` and `dp4a`."""
    if item.opcode == "sad":
        kind = last_type(item)
        return computed(ops, item, lambda a, b, c: np.where(a > b, a - b, b - a) + c, [kind] * 3, kind)
    kinds = types.types_of(item.modifiers)
    if item.opcode != "dp4a":
        raise UnsupportedInstruction(item.place)

    def parts(word: Array, kind: str) -> Array:
        return np.ascontiguousarray(word).view(types.SIGNED[1] if kind[0] == "s" else np.uint8).reshape(-1, 4)

    def run(a: Array, b: Array, c: Array) -> Array:
        return np.asarray((parts(a, kinds[0]).astype(np.int64) * parts(b, kinds[1])).sum(axis=1) + c)

    return computed(ops, item, run, ["u32", "u32", "s32" if "s32" in kinds else "u32"], "s32")


def half_product(kind: str, *, high: bool) -> Callable[[Array, Array], Array]:
    """Returns a function for the low or high half of a product."""
    if not high:
        return lambda a, b: a * b
    return lambda a, b: _high(kind)(a, b).astype(types.dtype(kind))
