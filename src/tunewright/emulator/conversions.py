"""`cvt`, `mov` and `cvta`: values moved between types and registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tunewright.emulator import small_floats, types
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

_TO_INTEGER: dict[str, Any] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_EIGHT_BITS = ("e4m3x2", "e5m2x2")


@builds("cvt")
def convert(ops: Operands, item: Instruction) -> Step:
    """`cvt`: one type to another."""
    kinds = types.types_of(item.modifiers)
    if len(kinds) != 2:
        raise UnsupportedInstruction(item.place)
    result, source = kinds
    if result in _EIGHT_BITS or source in _EIGHT_BITS:
        return _eight_bits(ops, item, result, source)
    if result in ("f16x2", "bf16x2") and source == "f32":
        return _pack(ops, item, result)
    if result == "tf32" and source == "f32":
        return computed(ops, item, _to_tf32, ["b32"], "b32")
    if "x2" in result or "x2" in source:
        raise UnsupportedInstruction(item.place)
    if source in FORMATS:
        return _from_float(ops, item, result, source)
    if result in FORMATS:
        return _from_integer(ops, item, result, source)
    return _between_integers(ops, item, result, source)


def _to_tf32(bits: Array) -> Array:
    """Rounds to 10 bits of mantissa, ties away from zero."""
    return (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)


def _round_float(item: Instruction) -> Callable[[Array], Array]:
    """Returns how a float is rounded before it is stored: to an integer, toward zero, or not at all."""
    for word, ufunc in _TO_INTEGER.items():
        if item.has(word):
            return lambda a: np.asarray(ufunc(a))
    return lambda a: a


def _narrow(item: Instruction, result: str) -> Callable[[Array], Array]:
    """Returns the encoder of a float type, with the rounding that the instruction asks for."""
    encode = FORMATS[result].encode
    if item.has("rz"):
        return _toward_zero(item, result)
    if {"rm", "rp"} & set(item.modifiers):
        raise UnsupportedInstruction(item.place, "its rounding")
    return encode


def _toward_zero(item: Instruction, result: str) -> Callable[[Array], Array]:
    if result == "bf16":
        return lambda a: (np.ascontiguousarray(a, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    if result not in ("f16", "f32"):
        raise UnsupportedInstruction(item.place, "its rounding")
    narrow: Any = types.dtype(result)

    def encode(a: Array) -> Array:
        near = a.astype(narrow)
        over = np.abs(near.astype(np.float64)) > np.abs(a.astype(np.float64))
        return np.where(over, np.nextafter(near, narrow(0)), near)

    return encode


def _from_float(ops: Operands, item: Instruction, result: str, source: str) -> Step:
    decode, rounding = FORMATS[source].decode, _round_float(item)
    ftz, sat, relu = item.has("ftz"), item.has("sat"), item.has("relu")
    if result not in FORMATS:
        return computed(
            ops, item, lambda a: _to_integer(rounding(decode(a)), result), [FORMATS[source].register], result
        )
    encode = _narrow(item, result)
    wide: Any = np.float64 if result == "f64" else np.float32 if source != "f64" else np.float64

    def run(a: Array) -> Array:
        value = rounding(decode(a)).astype(wide)
        value = flush(value) if ftz else value
        if sat:
            value = np.where(np.isnan(value), wide(0), np.clip(value, 0, 1))
        if relu:
            value = np.maximum(value, 0)
        return encode(value.astype(np.float32) if result == "f32" and not item.has("rz") else value)

    return computed(ops, item, run, [FORMATS[source].register], FORMATS[result].register)


def _to_integer(values: Array, result: str) -> Array:
    """Returns floats as integers; too large ones become the limit, not-a-number becomes 0."""
    limits = np.iinfo(types.dtype(result))
    values = np.trunc(values.astype(np.float64))
    inside = np.where(np.isnan(values) | (values >= float(limits.max)) | (values <= float(limits.min)), 0, values)
    kept = inside.astype(types.dtype(result))
    kept = np.where(values >= float(limits.max), limits.max, kept)
    return np.where(values <= float(limits.min), limits.min, kept).astype(types.dtype(result))


def _from_integer(ops: Operands, item: Instruction, result: str, source: str) -> Step:
    encode = FORMATS[result].encode

    def run(a: Array) -> Array:
        return encode(a.astype(np.float64) if result == "f64" else a.astype(np.float32))

    return computed(ops, item, run, [source], FORMATS[result].register)


def _between_integers(ops: Operands, item: Instruction, result: str, source: str) -> Step:
    if not item.has("sat"):
        return computed(ops, item, lambda a: a.astype(types.dtype(result)), [source], result)
    limits = np.iinfo(types.dtype(result))

    def run(a: Array) -> Array:
        if a.dtype == np.uint64:
            return np.minimum(a, np.uint64(limits.max)).astype(types.dtype(result))
        return np.clip(a.astype(np.int64), limits.min, min(limits.max, np.iinfo(np.int64).max))

    return computed(ops, item, run, [source], result)


def _pack(ops: Operands, item: Instruction, result: str) -> Step:
    """Two floats in one register: the first source is the upper half."""
    kind = result.removesuffix("x2")
    encode, relu = _narrow(item, kind), item.has("relu")

    def run(high: Array, low: Array) -> Array:
        if relu:
            high, low = np.maximum(high, 0), np.maximum(low, 0)
        upper, lower = (_bits(encode(part)).astype(np.uint32) for part in (high, low))
        return np.asarray(upper << np.uint32(16) | lower)

    return computed(ops, item, run, ["f32", "f32"], "b32")


def _bits(values: Array) -> Array:
    return np.ascontiguousarray(values).view(np.uint16)


def _eight_bits(ops: Operands, item: Instruction, result: str, source: str) -> Step:
    """Pairs of 8-bit floats."""
    if result == "f16x2":
        kind = source.removesuffix("x2")

        def unpack(bits: Array) -> Array:
            halves = small_floats.decode(kind, np.ascontiguousarray(bits).view(np.uint8)).astype(np.float16)
            return halves.view(np.uint32)

        return computed(ops, item, unpack, ["b16"], "b32")
    kind, relu = result.removesuffix("x2"), item.has("relu")
    if not item.has("satfinite") or source not in ("f32", "f16x2"):
        raise UnsupportedInstruction(item.place)

    def pack(high: Array, low: Array) -> Array:
        if relu:
            high, low = np.maximum(high, 0), np.maximum(low, 0)
        upper, lower = (small_floats.encode(kind, part).astype(np.uint16) for part in (high, low))
        return np.asarray(upper << np.uint16(8) | lower)

    if source == "f32":
        return computed(ops, item, pack, ["f32", "f32"], "b16")
    split = FORMATS["f16x2"].decode
    return computed(ops, item, lambda a: pack(split(a)[:, 1], split(a)[:, 0]), ["b32"], "b16")


@builds("mov")
def move(ops: Operands, item: Instruction) -> Step:
    """`mov`, also of a register to the parts of several and back."""
    kind = last_type(item)
    if item.operands[0].startswith("{"):
        return _unpack_move(ops, item, kind)
    if item.operands[1].startswith("{"):
        return _pack_move(ops, item, kind)
    source = ops.read(item, item.operands[1], kind)
    write = ops.write(item, item.operands[0], kind)
    return lambda group: write(group, source(group))


def _unpack_move(ops: Operands, item: Instruction, kind: str) -> Step:
    names = ops.vector(item.operands[0])
    part = f"b{8 * types.width(kind) // len(names)}"
    source = ops.read(item, item.operands[1], f"b{8 * types.width(kind)}")
    writers = [ops.write(item, name, part) for name in names]

    def run(group: Group) -> None:
        parts = np.ascontiguousarray(group.full(source(group))).view(types.dtype(part)).reshape(-1, len(names))
        for number, write in enumerate(writers):
            write(group, parts[:, number])

    return run


def _pack_move(ops: Operands, item: Instruction, kind: str) -> Step:
    names = ops.vector(item.operands[1])
    whole, part = f"b{8 * types.width(kind)}", f"b{8 * types.width(kind) // len(names)}"
    readers = [ops.read(item, name, part) for name in names]
    write = ops.write(item, item.operands[0], whole)

    def run(group: Group) -> None:
        parts = np.stack([group.full(read(group)) for read in readers], axis=1)
        write(group, parts.view(types.dtype(whole))[:, 0])

    return run


@builds("cvta")
def convert_address(ops: Operands, item: Instruction) -> Step:
    """`cvta`: addresses of a memory to generic ones and back."""
    kind = last_type(item)
    base = next((SHARED_WINDOW for word in item.modifiers if word.startswith("shared")), 0)
    base = LOCAL_WINDOW if item.has("local") else base
    if item.has("to"):
        return computed(ops, item, lambda a: np.where(a >= base, a - np.uint64(base), a), [kind], kind)
    return computed(ops, item, lambda a: a + np.uint64(base) if base else a, [kind], kind)


@builds("mapa", "getctarank")
def cluster_address(ops: Operands, item: Instruction) -> Step:
    """`mapa` in a cluster of one block: the address itself."""
    kind = last_type(item)
    if item.opcode == "getctarank":
        return computed(ops, item, lambda a: np.zeros(a.shape, np.uint32), ["u64"], "u32")
    return computed(ops, item, lambda a: a, [kind], kind)
