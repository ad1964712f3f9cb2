"""Plan for payloads with any operations: products are tiled, the rest is merged and fused by rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

from tunewright.mlir import compiler
from tunewright.mlir.contraction_plans import ContractionLoops, pack_right, why_not_contraction
from tunewright.mlir.epilogues import EpilogueChain, epilogue_chain
from tunewright.mlir.exponentials import EXPANDED
from tunewright.mlir.handles import Handle
from tunewright.mlir.nest_plans import hoist_accumulators
from tunewright.mlir.packing_steps import UNPACK
from tunewright.mlir.payload import LinalgOp, Payload, PlacedOp
from tunewright.mlir.plan import Parts, PlanContext, PlanPart, SchedulePlan, empty_part
from tunewright.mlir.processor import vector_lanes, vector_registers
from tunewright.mlir.row_groups import row_groups
from tunewright.mlir.row_plans import is_contraction, match_ops
from tunewright.mlir.schedule import Schedule
from tunewright.spaces.config import VARIANT
from tunewright.spaces.rule import Knob, Rule

MERGE = "linalg-fuse-elementwise-ops"
"""Pass that merges elementwise operations with what they read."""

AS_WRITTEN = "as written"

REASSOCIABLE = frozenset({"arith.addf", "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf"})
"""Operations that reduce a row in any order; additions change the last digits."""

SHARED_ITERATIONS = 1 << 14
"""The fewest iterations of an operation for which threads are started, which takes microseconds."""


class ModelPlan(SchedulePlan):
    """A plan whose default is the payload as it is written, which results are compared with."""

    default: dict[str, Any] = {VARIANT: AS_WRITTEN}  # noqa: RUF012 - never changed
    serial = frozenset({AS_WRITTEN})


def model_plan(payload: Payload, *, threads: int = 1) -> ModelPlan:
    """Returns the plan of any payload: as it is written, or in blocks of vectors.

    Products and convolutions are tiled first; with "packed", the right operands of products are copied into panels.
    Elementwise operations are then merged, and those that share rows run one after the other on each row.
    "reassociated" sums a row in vectors and unrolls channels of convolutions, and "polynomial" replaces calls of exp,
    erf and tanh by series; both change the last digits. Several threads share a loop of each large operation; as it is
    written, the payload runs on one.
    """
    return ModelPlan(payload, [written_part()], model_parts(payload, threads=threads))


def written_part() -> PlanPart:
    """Returns the payload as it is written."""
    return PlanPart(AS_WRITTEN, lambda context: context.schedule.bufferize())


def model_parts(payload: Payload, *, threads: int = 1) -> Parts:
    """Returns the parts of a plan of any payload in blocks of vectors."""
    ops = compiler.operations_after(payload.text, _simplified().script())
    packs = [empty_part("tiled")]
    if any(_packs(placed.op) for placed in ops):
        packs.append(empty_part("packed"))
    return [packs, _numerics_parts(payload, ops), _vector_part(ops, threads)]


def _simplified() -> Schedule:
    """Returns the first step of a schedule: dimensions of size 1 are dropped, with the reshapes between them."""
    schedule = Schedule()
    simplify(schedule)
    return schedule


def simplify(s: Schedule) -> None:
    """Drop dimensions of size 1, and reshapes that cancel."""
    s.cleanup("canonicalization", "linalg.fold_unit_extent_dims_via_reshapes", "tensor.reassociative_reshape_folding")


def _numerics_parts(payload: Payload, ops: Sequence[PlacedOp]) -> list[PlanPart]:
    """Returns the choice between results as they are written and those with other last digits, if there is one."""
    changes = {
        "reassociated": any(_sums_row(placed) or _is_reordered(placed.op) for placed in ops),
        "polynomial": any(f"{function} " in payload.text for function in EXPANDED),
    }
    name = " ".join(change for change, possible in changes.items() if possible)
    series = PlanPart(name, partial(_change_digits, series=changes["polynomial"]), numerics=True)
    return [empty_part(""), series] if name else [empty_part("")]


def _change_digits(context: PlanContext, *, series: bool) -> None:
    context.handles["reassociated"] = True
    if series:
        context.schedule.expand_exp()


def _sums_row(placed: PlacedOp) -> bool:
    """Returns whether an operation reduces its last loop alone, in a way that can be done side by side."""
    op = placed.op
    return op.reductions == set(op.loops[-1:]) != set() and not block_loops(op) and placed.combiner in REASSOCIABLE


def _vector_part(ops: Sequence[PlacedOp], threads: int) -> PlanPart:
    wide, most = vector_lanes(), vector_registers()
    knobs = [Knob("tj", [wide, 2 * wide, 4 * wide])]
    rules = []
    if any(is_contraction(placed.op) for placed in ops):
        knobs += [
            Knob("mr", [1, 2, 4, 6, 8, 12]),
            Knob("nr", [wide, 2 * wide, 4 * wide]),
            Knob("kr", [2, 4, 8, 16]),
        ]
        if any(block_loops(placed.op) and epilogue_chain(ops, i, {}) for i, placed in enumerate(ops)):
            knobs.append(Knob("epilogue", [True, False]))
        rules = [
            Rule("a register block fits into the vector registers", lambda mr, nr: mr * nr + nr + wide <= most * wide)
        ]
    return PlanPart("vectors", partial(_schedule_model, threads=threads), tuple(knobs), tuple(rules))


def _packs(op: LinalgOp) -> bool:
    """Returns whether the right operand of an operation can be packed."""
    return is_contraction(op) and not why_not_contraction(op)


def _panel(op: LinalgOp, context: PlanContext) -> int:
    """Returns the width of the panels of an operation; 0 if it is not packed."""
    if "packed" not in context.parts or not _packs(op):
        return 0
    loops = ContractionLoops.of(op)
    columns = loops.size(loops.column) or 1
    width = _divisor(columns, context["nr"], any_number=False)
    return width if vector_lanes() <= width < columns else 0


def _schedule_model(context: PlanContext, *, threads: int) -> None:
    """Tile products, merge and group the rest, tile it for vectors, then vectorize, bufferize and lower."""
    s = context.schedule
    simplify(s)
    if "packed" in context.parts:
        _pack(context)
    _tile_products(context, threads)
    if "packed" in context.parts:
        s.lower_relayouts()
    s.run_pass(MERGE)
    _fuse_rows(context, threads)
    _tile_for_vectors(context, threads)
    s.cleanup()
    s.cleanup("canonicalization", "linalg.fold_unit_extent_dims_via_slices")
    s.vectorize_all("linalg.generic", "linalg.reduce", "linalg.fill", optional=True)
    _hoist_accumulators(s)
    s.bufferize()
    s.lower()


def _hoist_accumulators(s: Schedule) -> None:
    """Keep accumulators in registers. Blocks with a dimension of size 1 inside are hoisted before reads are merged."""
    s.cleanup("canonicalization", "vector.reduction_to_contract", "vector.transfer_permutation_patterns")
    s.hoist()
    s.hoist()
    hoist_accumulators(s)
    s.run_pass("loop-invariant-code-motion")


def _operations(context: PlanContext) -> list[PlacedOp]:
    """Returns the operations after the steps so far."""
    return compiler.operations_after(context.payload.text, context.schedule.script())


def _pack(context: PlanContext) -> None:
    """Copy the right operand of each product into panels as wide as a register block."""
    s, ops = context.schedule, [placed.op for placed in _operations(context)]
    for op, handle in zip(ops, match_ops(context, ops), strict=True):
        if width := _panel(op, context):
            generic = handle if op.kind == "linalg.generic" else s.generalize(handle)
            pack_right(context, ContractionLoops.of(op), generic, width)
    s.cleanup("canonicalization", "linalg.tiling_canonicalization", "tensor.fold_into_pack_and_unpack")


def _tile_products(context: PlanContext, threads: int) -> None:
    """Tile each product and convolution, before anything can be merged into it, with its epilogue if that is chosen."""
    placed = _operations(context)
    ops, unpacks = [one.op for one in placed], dict[str, str]()
    if context.knobs.get("epilogue") and "packed" in context.parts:
        unpacks = compiler.unpacked_results(context.payload.text, context.schedule.script())
    handles = match_ops(context, ops)
    taken: set[int] = set()  # what follows two products is computed with one of them
    for number, op in enumerate(ops):
        if block_loops(op):
            chain = epilogue_chain(placed, number, unpacks) if context.knobs.get("epilogue") else None
            if chain is None or taken & set(chain.after) or not _tile_chain(context, handles, ops, chain, threads):
                _tile_shared(context, handles[number], op, threads)
            else:
                taken |= set(chain.after)


def _tile_chain(
    context: PlanContext, handles: Sequence[Handle], ops: Sequence[LinalgOp], chain: EpilogueChain, threads: int
) -> bool:
    """Tile the last operation of a chain by the blocks of its product, and compute the others in these. False if it
    does not fit."""
    s, op, last = context.schedule, ops[chain.product], ops[chain.after[0]]
    block, written, shared = block_loops(op), op.writes[1].split(","), shared_loop(op, threads)
    if block is None or _loop_order(op) != list(range(len(op.loops))) or written[-1] != op.loops[block.column]:
        return False
    sizes = tile_sizes(op if shared is None else _share(op, shared, threads), context)
    tile = [1] * (len(last.loops) - 1) + [sizes[block.column]]
    if block.row is not None:
        tile[written.index(op.loops[block.row])] = sizes[block.row]
    around = None if shared is None else written.index(op.loops[shared])
    if around is not None and around >= len(tile) - 1:
        return False
    parts = [handles[number] for number in chain.after]
    if chain.unpacked is not None:
        parts.append(s.producer(parts[-1], chain.unpacked, UNPACK))
    product = handles[chain.product]
    parts.append(product if op.kind == "linalg.generic" else s.generalize(product))
    parts += [handles[chain.fill]] if chain.fill is not None else []
    if around is not None:
        parts = _fuse_chain(s, parts, s.distribute(parts[0], threads, around))
    parts = _fuse_chain(s, parts, s.tile(parts[0], tile))
    inner = parts[len(chain.after) + (chain.unpacked is not None)]
    s.tile(inner, [size if loop in op.reductions else 0 for loop, size in zip(op.loops, sizes, strict=True)])
    return True


def _fuse_rows(context: PlanContext, threads: int) -> None:
    """Fuse operations that share rows into loops over them; threads share the outermost one that they divide evenly."""
    s, ops = context.schedule, _operations(context)
    handles = match_ops(context, [placed.op for placed in ops])
    for group in row_groups(ops):
        chain = [handles[number] for number in reversed(group.members)]
        shared = shared_loop(ops[group.members[-1]].op, threads)
        if shared is not None and shared < group.depth:
            chain = _fuse_chain(s, chain, s.distribute(chain[0], threads, shared))
        _fuse_chain(s, chain, s.tile(chain[0], [1] * group.depth))
    s.cleanup()
    s.cleanup("canonicalization", "tensor.fold_tensor_empty")


def _fuse_chain(s: Schedule, chain: Sequence[Handle], tiled: tuple[Handle, list[Handle]]) -> list[Handle]:
    """Fuse the producers of a tiled operation, the last first. Returns the tiles."""
    tile, (loop, *_) = tiled
    tiles = [tile]
    for producer in chain[1:]:
        tile, loop = s.fuse(producer, loop)
        tiles.append(tile)
    return tiles


def _tile_for_vectors(context: PlanContext, threads: int) -> None:
    """Tile what is no product by vectors along its last loop."""
    s, ops = context.schedule, _operations(context)
    for placed, handle in zip(ops, match_ops(context, [placed.op for placed in ops]), strict=True):
        op = placed.op
        if block_loops(op) or not op.loops or (placed.nested and op.kind == "linalg.fill"):
            continue
        if context.handles.get("reassociated") and _sums_row(placed):
            *rows, columns = tile_sizes(op, context)
            if rows and not placed.nested:
                handle, _ = s.tile(handle, [*rows, 0])
            s.tile_reduction(handle, [0] * len(rows) + [columns])
        else:
            _tile_shared(context, handle, op, 1 if placed.nested else threads)


def _tile_shared(context: PlanContext, handle: Handle, op: LinalgOp, threads: int) -> None:
    """Tile an operation; threads share one of its loops if it is large."""
    s, shared, order = context.schedule, shared_loop(op, threads), _loop_order(op)
    sizes = tile_sizes(op if shared is None else _share(op, shared, threads), context)
    if order != sorted(order):
        handle = s.interchange(handle, order)
    elif op.kind != "linalg.generic":
        handle = s.generalize(handle)
    if shared is not None:
        handle, _ = s.distribute(handle, threads, order.index(shared))
    s.tile(handle, [sizes[loop] for loop in order])


def _loop_order(op: LinalgOp) -> list[int]:
    """Returns the order of loops in which a block becomes an outer product: rows after columns if they are read second.

    Vectors are recognized as an outer product only if the first operand has the first of the two loops.
    """
    order, tile = list(range(len(op.loops))), block_loops(op)
    if tile and tile.row is not None and op.loops[tile.column] in _names(op.reads[0][1]):
        order.remove(tile.row)
        order.insert(order.index(tile.column) + 1, tile.row)
    return order


def shared_loop(op: LinalgOp, threads: int) -> int | None:
    """Returns the loop of an operation that threads share: the first that they divide evenly, but not its columns.

    None if there is none, or if it is too short for the threads to be worth their start.
    """
    free = [i for i, loop in enumerate(op.loops) if loop not in op.reductions]
    if threads == 1 or None in op.sizes or prod(size or 1 for size in op.sizes) < SHARED_ITERATIONS:
        return None
    even = (i for i in free[:-1] if (op.sizes[i] or 1) % threads == 0 and _is_plain(op, i))
    return next(even, None)


def _share(op: LinalgOp, loop: int, threads: int) -> LinalgOp:
    """Returns what one thread computes of an operation."""
    return replace(op, sizes=tuple((size or 0) // threads if i == loop else size for i, size in enumerate(op.sizes)))


def tile_sizes(op: LinalgOp, context: PlanContext) -> list[int]:
    """Returns the tile of an operation: whole vectors along its last loop, register blocks of a contraction, else 1."""
    sizes = [1] * len(op.loops)
    if turned := _turned_loop(op):
        for loop in (turned, -1):
            sizes[loop] = _divisor(op.sizes[loop], vector_lanes(), any_number=False)
    elif block := block_loops(op):
        if _is_plain(op, block.column):
            sizes[block.column] = _divisor(op.sizes[block.column], context["nr"], any_number=False)
        if block.row is not None:
            sizes[block.row] = _divisor(op.sizes[block.row], context["mr"], any_number=True)
        if block.sum is not None:
            terms = 1 if _is_reordered(op) and not context.handles.get("reassociated") else context["kr"]
            sizes[block.sum] = _divisor(op.sizes[block.sum], terms, any_number=True)
    else:
        sizes[-1] = _divisor(op.sizes[-1], context["tj"], any_number=False)
    return sizes


def _turned_loop(op: LinalgOp) -> int:
    """Returns the loop along which a transpose reads, if it writes along another; then both are vectors. Else 0."""
    if op.kind != "linalg.transpose" or len(op.loops) < 2:
        return 0
    loop = op.loops.index(op.reads[0][1].split(",")[-1])
    return loop if loop != len(op.loops) - 1 else 0


@dataclass(frozen=True)
class BlockLoops:
    """The loops of a contraction that a register block has: a column, and where there are, a row and a sum."""

    column: int
    row: int | None
    sum: int | None


def block_loops(op: LinalgOp) -> BlockLoops | None:
    """Returns the loops of a contraction's register block; None if it has none, as the product with one column.

    Rows are of the operand that is not read by column, so that a block is an outer product.
    """
    free = [i for i, loop in enumerate(op.loops) if loop not in op.reductions]
    if not free or not is_contraction(op) or _is_dot(op):
        return None
    column = free[-1]
    right = next((where for _, where in op.reads[:2] if op.loops[column] in _names(where)), "")
    rows = [i for i in free[:-1] if op.loops[i] not in _names(right) and _is_plain(op, i)]
    sides = [part for _, where in op.reads for part in where.split(",") if "+" in part]
    added = {name for part in sides for name in _names(part)}
    sums = [i for i, loop in enumerate(op.loops) if loop in op.reductions and loop not in added]
    return BlockLoops(column, rows[-1] if rows else None, sums[-1] if sums else None)


def _is_reordered(op: LinalgOp) -> bool:
    """Returns whether a register block with several terms adds in another order: if another sum is inside that loop."""
    block = block_loops(op)
    return (
        block is not None and block.sum is not None and any(loop in op.reductions for loop in op.loops[block.sum + 1 :])
    )


def _is_dot(op: LinalgOp) -> bool:
    """Returns whether both operands are read along the only sum of a contraction, and one has no other loop."""
    free = {loop for loop in op.loops if loop not in op.reductions}
    along = all(where.split(",")[-1] in op.reductions for _, where in op.reads[:2])
    return along and len(op.reductions) == 1 and any(not free & set(_names(where)) for _, where in op.reads[:2])


def _names(index: str) -> list[str]:
    """Returns the loops in an index."""
    return re.findall(r"\w+", index)


def _is_plain(op: LinalgOp, loop: int) -> bool:
    """Returns whether a loop is a plain index, or one plus another, as of a convolution, which is then tiled by 1."""
    parts = [part for _, index in (*op.reads, op.writes) for part in index.split(",")]
    mine = [part for part in parts if op.loops[loop] in _names(part)]
    return all(re.fullmatch(r"\w+(\+\w+)?", part) for part in mine)


def _divisor(size: int | None, limit: int, *, any_number: bool) -> int:
    """Returns the largest divisor of a size up to a limit: a power of two, unless any fits or none fills a vector."""
    if size is None:
        return 1
    powers = next(1 << i for i in range(limit.bit_length() - 1, -1, -1) if size % (1 << i) == 0)
    most = next(number for number in range(limit, 0, -1) if size % number == 0)
    return most if any_number or powers < min(vector_lanes(), most) else powers
