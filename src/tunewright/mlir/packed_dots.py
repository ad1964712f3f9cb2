"""Replaces products and copies that a schedule has marked by functions with dot-product instructions and shuffles."""

from __future__ import annotations

import re
from math import prod
from typing import Any

from tunewright.mlir.dot_blocks import (
    BITS,
    GROUP_BITS,
    LANES,
    DotBlock,
    can_interleave,
    interleaving,
    tile_block,
    vector_block,
)
from tunewright.mlir.processor import USES_TILES
from tunewright.mlir.schedule import DOT_TILES, DOT_VECTORS, INTERLEAVE

_PRODUCT = {
    "bf16": {"arith.extf", "arith.mulf", "arith.addf", "linalg.yield"},
    "i8": {"arith.extsi", "arith.muli", "arith.addi", "linalg.yield"},
}
"""What the body of a product consists of."""

INLINE = "inline,canonicalize,cse"
"""Passes that put the functions where they are called."""


def insert_dot_blocks(ir: Any, module: Any) -> int:
    """Replace what is marked and fits by calls of functions, which are added to the module. Returns how many."""
    marked: list[tuple[Any, str]] = []

    def collect(op: Any) -> Any:
        marked.extend((op, name) for name in (DOT_TILES, DOT_VECTORS, INTERLEAVE) if name in op.attributes)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    functions: list[str] = []
    made = [_replace(ir, op, mark, functions) for op, mark in marked]
    if any(done and mark == DOT_TILES for done, (_, mark) in zip(made, marked, strict=True)):
        functions.append(f"func.func @{USES_TILES}() {{ return }}")
    for text in functions:
        parsed = ir.Module.parse(text)
        parsed.body.operations[0].operation.clone(ip=ir.InsertionPoint(module.body))
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
    if any(size < 0 for shape in shapes for size in shape):
        return ""
    if mark == INTERLEAVE:
        if not can_interleave(shapes[1], element) or _permutation(op) != _interleaved(len(shapes[1])):
            return ""
        return interleaving(name, (str(types[0]), str(types[1])), shapes[1], element)
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
    block = DotBlock(
        name, (str(types[0]), str(types[1]), str(types[2])), sizes[rows[0]] if rows else 1,
        sizes[panels[0]] if panels else 1, sizes[group[0]], element, bool(rows), bool(panels), clears,
    )  # fmt: skip
    return tile_block(block) if mark == DOT_TILES else vector_block(block)


def _permutation(op: Any) -> list[int]:
    return list(op.attributes["permutation"]) if "permutation" in op.attributes else []


def _interleaved(rank: int) -> list[int]:
    """Returns the permutation that puts groups of terms into panels."""
    around = rank - 4
    return [*range(around), around + 2, around, around + 3, around + 1]


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
    while getattr(views[-1].owner, "name", "") == "memref.subview":
        source = views[-1].owner.operands[0]
        if prod(source.type.shape) != prod(array.type.shape):
            break
        views.append(source)
    return views


def _is_zero(value: Any) -> bool:
    owner = value.owner
    return getattr(owner, "name", "") == "arith.constant" and float(owner.attributes["value"].value) == 0
