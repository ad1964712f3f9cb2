"""Inserts prefetches of the next row into loops that a schedule has marked."""

from __future__ import annotations

from typing import Any

from tunewright.mlir.processor import FLOAT_BYTES
from tunewright.mlir.schedule import PREFETCH

LINE_BYTES = 64
"""Bytes that one prefetch loads."""

ACCESSES = "fold-memref-alias-ops,canonicalize,cse"
"""Passes after which loads and stores name the arrays of the function."""


def insert_prefetches(ir: Any, module: Any) -> int:
    """Prefetch, in each marked loop, the next row of the arrays that the loop around it accesses. Returns how many."""
    marked: list[Any] = []

    def collect(op: Any) -> Any:
        if op.name == "scf.for" and PREFETCH in op.attributes:
            marked.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    return sum(_insert_in_loop(ir, loop) for loop in marked)


def _insert_in_loop(ir: Any, loop: Any) -> int:
    around = loop.parent
    if around is None or around.name != "scf.for":
        return 0
    row, step = around.regions[0].blocks[0].arguments[0], _constant(loop.operands[2])
    if step is None:
        return 0
    block = loop.regions[0].blocks[0]
    rows = _rows_accessed(ir, around, row)
    with ir.InsertionPoint.at_block_begin(block):
        index = ir.IndexType.get()
        following = _op(ir, "arith.addi", [row, around.operands[2]], index)
        # Addresses are only computed within the array, so the last row is its own next one.
        last = _op(ir, "arith.subi", [around.operands[1], around.operands[2]], index)
        following = _op(ir, "arith.minsi", [following, last], index)
        for array, indices, write in rows:
            for offset in range(0, step, LINE_BYTES // FLOAT_BYTES):
                column = _op(ir, "arith.addi", [block.arguments[0], _index(ir, offset)], index)
                place = [following if value == row else value for value in indices[:-1]]
                flags = {
                    "isWrite": ir.BoolAttr.get(write),
                    "isDataCache": ir.BoolAttr.get(True),
                    "localityHint": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 3),
                }
                ir.Operation.create("memref.prefetch", operands=[array, *place, column], attributes=flags)
    return len(rows)


def _rows_accessed(ir: Any, around: Any, row: Any) -> list[tuple[Any, list[Any], bool]]:
    """Returns the arrays that are read or written by row inside a loop, with their indices; each once."""
    found: dict[str, tuple[Any, list[Any], bool]] = {}

    def look(op: Any) -> Any:
        if op.name in ("vector.load", "vector.store"):
            write = op.name == "vector.store"
            array, *indices = list(op.operands)[1 if write else 0 :]
            inside = [value for value in indices[:-1] if value != row and _is_inside(value, around)]
            if isinstance(array, ir.BlockArgument) and row in indices[:-1] and not inside:
                known = found.get(array.get_name())
                found[array.get_name()] = (array, indices, write or (known is not None and known[2]))
        return ir.WalkResult.ADVANCE

    around.walk(look)
    return list(found.values())


def _is_inside(value: Any, loop: Any) -> bool:
    """Returns whether a value is computed inside a loop."""
    op = value.owner if hasattr(value.owner, "parent") else value.owner.owner
    while op is not None:
        if op == loop:
            return True
        op = op.parent
    return False


def _constant(value: Any) -> int | None:
    op = value.owner
    return int(op.attributes["value"].value) if getattr(op, "name", "") == "arith.constant" else None


def _index(ir: Any, value: int) -> Any:
    attribute = ir.IntegerAttr.get(ir.IndexType.get(), value)
    made = ir.Operation.create("arith.constant", results=[ir.IndexType.get()], attributes={"value": attribute})
    return made.results[0]


def _op(ir: Any, name: str, operands: list[Any], result: Any) -> Any:
    return ir.Operation.create(name, results=[result], operands=operands).results[0]
