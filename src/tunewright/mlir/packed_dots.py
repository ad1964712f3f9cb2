"""Replaces products and copies that a schedule has marked by functions with dot-product instructions and shuffles."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import Any

from tunewright.mlir.dot_blocks import (
    BITS,
    GROUP_BITS,
    LANES,
    DotBlock,
    block_of_either,
    tile_block,
)
from tunewright.mlir.dot_copies import can_interleave, interleaving, transposing
from tunewright.mlir.dot_vectors import vector_block
from tunewright.mlir.processor import USES_TILES
from tunewright.mlir.schedule import DOT_MARKS, DOT_TILES, DOT_WIDENED, INTERLEAVE

_PRODUCT = {
    "bf16": {"arith.extf", "arith.mulf", "arith.addf", "linalg.yield"},
    "i8": {"arith.extsi", "arith.muli", "arith.addi", "linalg.yield"},
}
"""What the body of a product consists of."""

_ENDING = re.compile(r"\(d0\) -> \((?:d0 \* -(?P<step>\d+) \+ (?P<size>\d+), (?P<most>\d+))\)")
"""The rows of a block in a loop over rows that blocks do not divide: what is left, at most a whole block."""

INLINE = "inline,inline,canonicalize,cse"
"""Passes that put the functions where they are called, and those that these call."""


def insert_dot_blocks(ir: Any, module: Any) -> int:
    """Replace what is marked and fits by calls of functions, which are added to the module. Returns how many."""
    marked: list[tuple[Any, str]] = []

    def collect(op: Any) -> Any:
        marked.extend((op, name) for name in DOT_MARKS if name in op.attributes)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    functions: list[str] = []
    made = [_replace(ir, op, mark, functions) for op, mark in marked]
    if any(done and mark == DOT_TILES for done, (_, mark) in zip(made, marked, strict=True)):
        functions.append(f"func.func @{USES_TILES}() {{ return }}")
    for text in functions:
        for function in ir.Module.parse(text).body.operations:
            function.operation.clone(ip=ir.InsertionPoint(module.body))
    return sum(made)


def _replace(ir: Any, op: Any, mark: str, functions: list[str]) -> bool:
    """Replace an operation by a call of a function of its own."""
    operands, name = list(op.operands), f"{mark}_{len(functions)}"
    cleared = _find_clearing(op, operands[-1]) if mark != INTERLEAVE else None
    text = _write_function(op, mark, name, clears=cleared is not None)
    if not text:
        return False
    functions.append(text)
    with ir.InsertionPoint(op):
        callee = ir.FlatSymbolRefAttr.get(name)
        ir.Operation.create("func.call", operands=operands, attributes={"callee": callee})
    op.operation.erase()
    if cleared is not None:
        cleared.operation.erase()
    return True


def _write_function(op: Any, mark: str, name: str, *, clears: bool) -> str:
    """Returns the function that computes what an operation does; "" if its shapes do not fit the instructions."""
    types = [operand.type for operand in op.operands]
    shapes, element = [tuple(kind.shape) for kind in types], str(types[0].element_type)
    if mark == INTERLEAVE:
        if _is_dynamic(*shapes) or not can_interleave(shapes[1], element):
            return ""
        copy = {_interleaved(len(shapes[1])): interleaving, _turned(len(shapes[1])): transposing}.get(_permutation(op))
        return copy(name, (str(types[0]), str(types[1])), shapes[1], element) if copy else ""
    body = {other.operation.name for other in op.regions[0].blocks[0].operations} if op.regions else set()
    if element not in BITS or not body <= _PRODUCT[element]:
        return ""
    maps = [re.findall(r"\((.*?)\)", str(indexing)) for indexing in op.attributes["indexing_maps"]]
    left, right, result = ([part.strip() for part in indexing[1].split(",")] for indexing in maps)
    rows, panels = [i for i in left if i in result], [i for i in right[:-1] if i in result][:-1]
    group, term = [i for i in left if i not in result][:1], [i for i in left if i not in result][1:]
    column = result[-1:]
    written = (left, right, result) == (
        [*rows, *group, *term],
        [*panels, *group, *column, *term],
        [*rows, *panels, *column],
    )
    sizes = {index: size for names, shape in zip((left, right, result), shapes, strict=True)
             for index, size in zip(names, shape, strict=True)}  # fmt: skip
    one_each = len(rows) <= 1 and len(panels) <= 1 and len(term) == 1
    if not (written and one_each and sizes[column[0]] == LANES and sizes[term[0]] * BITS[element] == GROUP_BITS):
        return ""
    high: tuple[int, ...] = (sizes.pop(rows[0]),) if rows else (1,)
    if _is_dynamic(sizes.values()):
        return ""
    if high[0] < 0:
        high = _rows_of_blocks(op)
    block = DotBlock(
        name, (str(types[0]), str(types[1]), str(types[2])), 0,
        sizes[panels[0]] if panels else 1, sizes[group[0]], element, bool(rows), bool(panels), clears,
        widens=mark == DOT_WIDENED,
    )  # fmt: skip
    write = tile_block if mark == DOT_TILES else vector_block
    if len(high) == 1:
        return write(replace(block, rows=high[0]))
    return block_of_either(block, high, write) if high else ""


def _is_dynamic(*shapes: Iterable[int]) -> bool:
    """Returns whether a size is known only at a call."""
    return any(size < 0 for shape in shapes for size in shape)


def _rows_of_blocks(op: Any) -> tuple[int, ...]:
    """Returns how many rows the blocks of a loop have that does not divide them: whole ones, and the last one.

    Nothing if the rows are not what is left of a constant.
    """
    owner = op.operands[0].owner
    ends = [value.owner for value in getattr(owner, "operands", ()) if _name_of(value) == "affine.min"]
    found = _ENDING.search(str(ends[0].attributes["map"])) if len(ends) == 1 else None
    if found is None or found["step"] != found["most"]:
        return ()
    whole, size = int(found["most"]), int(found["size"])
    return (whole, size % whole) if size > whole and size % whole else ()


def _name_of(value: Any) -> str:
    """Returns the name of the operation that a value is a result of; "" if it is an argument."""
    return str(getattr(value.owner, "name", ""))


def _permutation(op: Any) -> tuple[int, ...]:
    return tuple(op.attributes["permutation"]) if "permutation" in op.attributes else ()


def _interleaved(rank: int) -> tuple[int, ...]:
    """Returns the permutation that puts groups of terms into panels."""
    around = rank - 4
    return (*range(around), around + 2, around, around + 3, around + 1)


def _turned(rank: int) -> tuple[int, ...]:
    """Returns the permutation that does so for an operand whose rows are columns of the product."""
    around = rank - 4
    return (*range(around), around, around + 2, around + 1, around + 3)


def _find_clearing(op: Any, array: Any) -> Any | None:
    """Returns the fill with zeros before an operation that it adds to, if nothing between them uses the array."""
    whole, found = _whole_views(array), None
    for other in op.operation.block.operations:
        if other.operation == op.operation:
            return found
        is_view = any(result in whole for result in other.results)
        if not is_view and (other.operation.regions or any(operand in whole for operand in other.operands)):
            clears = other.operation.name == "linalg.fill" and _is_zero(other.operands[0])
            found = other if clears and other.operands[-1] in whole else None
    return None


def _whole_views(array: Any) -> list[Any]:
    """Returns an array and those that it is a view of, as far as they have the same elements."""
    views = [array]
    while _name_of(views[-1]) == "memref.subview" and not _is_dynamic(array.type.shape):
        source = views[-1].owner.operands[0]
        if prod(source.type.shape) != prod(array.type.shape):
            break
        views.append(source)
    return views


def _is_zero(value: Any) -> bool:
    owner = value.owner
    return _name_of(value) == "arith.constant" and float(owner.attributes["value"].value) == 0
