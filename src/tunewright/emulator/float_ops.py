"""Floating-point instructions of 16, 32 and 64 bits.

Results that PTX defines exactly are exact; approximate instructions are computed to the nearest float, which is
within their documented error. Instructions with `.ftz` flush subnormal inputs and results to zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tunewright.emulator import carry_ops, directed_rounding, integer_ops, types
from tunewright.emulator.builders import builds
from tunewright.emulator.faults import UnsupportedInstruction
from tunewright.emulator.operands import Operands, Step
from tunewright.emulator.ptx_text import Instruction
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.group import Group

_DIRECTED = directed_rounding.MODES.keys()


class Format(NamedTuple):
    """How registers of a type are read as floats that numpy computes with, and written back."""

    register: str
    decode: Callable[[Array], Array]
    encode: Callable[[Array], Array]


def _same(values: Array) -> Array:
    return values


def _halves(values: Array, kind: Any) -> Array:
    return np.asarray(np.ascontiguousarray(values).view(kind).reshape(-1, 2))


def _join(values: Array) -> Array:
    return np.asarray(np.ascontiguousarray(values).view(np.uint32).reshape(-1))


FORMATS = {
    "f32": Format("f32", _same, _same),
    "f64": Format("f64", _same, _same),
    "f16": Format("f16", lambda a: a.astype(np.float32), lambda a: a.astype(np.float16)),
    "bf16": Format("b16", types.bfloat_to_float, types.float_to_bfloat),
    "f16x2": Format("b32", lambda a: _halves(a, np.float16).astype(np.float32), lambda a: _join(a.astype(np.float16))),
    "bf16x2": Format(
        "b32",
        lambda a: types.bfloat_to_float(_halves(a, np.uint16)),
        lambda a: _join(types.float_to_bfloat(a.astype(np.float32))),
    ),
}

TINY = np.float32(np.finfo(np.float32).tiny)


def flush(values: Array) -> Array:
    """Returns float32 values with subnormal ones replaced by zeros of their sign."""
    if values.dtype != np.float32:
        return values
    small = np.abs(values) < TINY
    return np.where(small, np.copysign(np.float32(0), values), values) if small.any() else values


def float_step(ops: Operands, item: Instruction, function: Callable[..., Array], count: int) -> Step:
    """Returns the step of a function of `count` floats of the instruction's last type."""
    kind = integer_ops.last_type(item)
    if _DIRECTED & set(item.modifiers):
        function = directed_rounding.rounded(item, kind)
    if kind not in FORMATS:
        raise UnsupportedInstruction(item.place, "its type")
    form = FORMATS[kind]
    readers = [ops.read(item, text, form.register) for text in item.operands[1 : 1 + count]]
    write = ops.write(item, item.operands[0], form.register)
    ftz, sat, relu = item.has("ftz"), item.has("sat"), item.has("relu")
    size = np.float64 if kind == "f64" else np.float32

    def run(group: Group) -> None:
        sources = [form.decode(read(group)) for read in readers]
        if ftz:
            sources = [flush(source) for source in sources]
        result = np.asarray(function(*sources))
        result = result.astype(size) if result.dtype != size and kind in ("f32", "f64") else result
        if sat:
            result = np.where(np.isnan(result), size(0), np.clip(result, 0, 1))
        if relu:
            result = np.maximum(result, 0)
        write(group, form.encode(flush(result) if ftz else result))

    return run


def fused(a: Array, b: Array, c: Array) -> Array:
    """Returns a * b + c of float32 with one rounding."""
    if a.dtype == np.float64:
        return _fused_double(a, b, c)
    product = a.astype(np.float64) * b
    total = product + c
    # A result that lies exactly between two float32 was perhaps rounded to get there: what was lost decides.
    tie = (total.view(np.uint64) & np.uint64(0x1FFFFFFF)) == np.uint64(0x10000000)
    if tie.any():
        part = total - product
        lost = (product - (total - part)) + (c - part)
        toward = np.where(lost > 0, np.inf, -np.inf)
        total = np.where(tie & (lost != 0) & np.isfinite(total), np.nextafter(total, toward), total)
    return total.astype(np.float32)


def _split(a: Array) -> tuple[Array, Array]:
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


def _fused_double(a: Array, b: Array, c: Array) -> Array:
    product = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    lost = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    total = product + c
    part = total - product
    lost_sum = (product - (total - part)) + (c - part)
    exact = total + (lost + lost_sum)
    return np.where(np.isfinite(exact), exact, total)


def _is_float(item: Instruction) -> bool:
    return integer_ops.last_type(item)[0] == "f" or "bf16" in integer_ops.last_type(item)


@builds("add", "sub", "mul")
def arithmetic(ops: Operands, item: Instruction) -> Step:
    """`add`, `sub` and `mul` of any type."""
    if item.has("cc"):
        return carry_ops.with_carry(ops, item)
    if not _is_float(item):
        return integer_ops.multiply(ops, item) if item.opcode == "mul" else integer_ops.add_sub(ops, item)
    ufunc: Any = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[item.opcode]
    kind = integer_ops.last_type(item)
    if kind in ("f32", "f64") and not {"ftz", "sat", *_DIRECTED} & set(item.modifiers):
        return integer_ops.binary(ops, item, ufunc, kind)
    if types.types_of(item.modifiers) != [kind]:
        raise UnsupportedInstruction(item.place, "mixed types")
    return float_step(ops, item, ufunc, 2)


@builds("fma", "mad")
def multiply_add(ops: Operands, item: Instruction) -> Step:
    """`fma`, and `mad` of any type."""
    if item.has("cc"):
        return carry_ops.with_carry(ops, item)
    if not _is_float(item):
        return integer_ops.multiply_add(ops, item)
    if integer_ops.last_type(item) in ("f32", "f64"):
        return float_step(ops, item, fused, 3)
    return float_step(ops, item, lambda a, b, c: a.astype(np.float64) * b + c, 3)


@builds("min", "max")
def extremum(ops: Operands, item: Instruction) -> Step:
    """`min` and `max`; of floats, a number wins over not-a-number unless `.NaN` is given."""
    small = item.opcode == "min"
    kind = integer_ops.last_type(item)
    if not _is_float(item):
        if "x" in kind or item.has("relu"):
            raise UnsupportedInstruction(item.place)
        return integer_ops.binary(ops, item, np.minimum if small else np.maximum, kind)
    strict = item.has("NaN")
    ufunc: Any = (np.minimum if small else np.maximum) if strict else (np.fmin if small else np.fmax)
    if item.has("xorsign") or item.has("abs"):
        raise UnsupportedInstruction(item.place)
    if len(item.operands) == 4:
        return float_step(ops, item, lambda a, b, c: ufunc(ufunc(a, b), c), 3)
    if kind == "f32" and not item.has("ftz"):
        return integer_ops.binary(ops, item, ufunc, kind)
    return float_step(ops, item, ufunc, 2)


@builds("neg", "abs")
def sign(ops: Operands, item: Instruction) -> Step:
    """`neg` and `abs`."""
    kind = integer_ops.last_type(item)
    ufunc: Any = np.negative if item.opcode == "neg" else np.abs
    if _is_float(item):
        return float_step(ops, item, ufunc, 1)
    return integer_ops.computed(ops, item, ufunc, [kind], kind)


@builds("div", "rem")
def divide(ops: Operands, item: Instruction) -> Step:
    """`div` and `rem` of any type."""
    if not _is_float(item):
        return integer_ops.divide(ops, item)
    return float_step(ops, item, np.divide, 2)


def _reciprocal(a: Array) -> Array:
    return np.asarray(a.dtype.type(1) / a)


def _reciprocal_root(a: Array) -> Array:
    return np.asarray(1 / np.sqrt(a.astype(np.float64)))


_UNARY: dict[str, Callable[[Array], Array]] = {
    "rcp": _reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": _reciprocal_root,
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": lambda a: np.sin(a.astype(np.float64)),
    "cos": lambda a: np.cos(a.astype(np.float64)),
    "tanh": np.tanh,
}


@builds(*_UNARY)
def special(ops: Operands, item: Instruction) -> Step:
    """Reciprocals, roots, powers, logarithms and trigonometric functions."""
    return float_step(ops, item, _UNARY[item.opcode], 1)


@builds("copysign")
def copy_sign(ops: Operands, item: Instruction) -> Step:
    """`copysign d, a, b`: b with the sign of a."""
    return float_step(ops, item, lambda a, b: np.copysign(b, a), 2)


@builds("testp")
def test_property(ops: Operands, item: Instruction) -> Step:
    """`testp`: whether a float is finite, infinite, a number and so on."""
    kind = integer_ops.last_type(item)
    table: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= np.finfo(a.dtype).tiny),
        "subnormal": lambda a: (a != 0) & (np.abs(a) < np.finfo(a.dtype).tiny),
    }
    return integer_ops.computed(ops, item, table[item.modifiers[0]], [kind], "pred")
