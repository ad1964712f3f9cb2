"""Plan for payloads with any operations: elementwise ones are merged, then each is tiled and vectorized by itself."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from tunewright.mlir import compiler
from tunewright.mlir.contraction_plans import ContractionLoops, pack_right, why_not_contraction
from tunewright.mlir.nest_plans import hoist_accumulators
from tunewright.mlir.payload import LinalgOp, Payload
from tunewright.mlir.plan import PlanContext, PlanPart, SchedulePlan, empty_part
from tunewright.mlir.processor import vector_lanes, vector_registers
from tunewright.mlir.row_plans import is_contraction, match_ops
from tunewright.spaces.config import VARIANT
from tunewright.spaces.rule import Knob, Rule

MERGE = "linalg-fuse-elementwise-ops"
"""Pass that merges elementwise operations with what they read."""

AS_WRITTEN = "as written"

SHARED_ITERATIONS = 1 << 14
"""The fewest iterations of an operation for which threads are started, which takes microseconds."""


class ModelPlan(SchedulePlan):
    """A plan whose default is the payload as it is written, which results are compared with."""

    default: dict[str, Any] = {VARIANT: AS_WRITTEN}  # noqa: RUF012 - never changed
    serial = frozenset({AS_WRITTEN})


def model_plan(payload: Payload, *, threads: int = 1) -> ModelPlan:
    """Returns the plan of any payload: as it is written, or each operation in blocks of vectors.

    Elementwise operations are first merged with what they read. With "packed", the right operands of products are
    copied into panels. "polynomial" replaces calls of exp by a series, which vectors can use, and which changes the
    last digits. Several threads share a loop of each large operation; as it is written, the payload runs on one.
    """
    ops = compiler.parse_payload(payload.text, after=MERGE).operations
    packs = [empty_part("tiled")]
    if any(_packs(op) for op in ops):
        packs.append(PlanPart("packed", partial(_pack, ops=ops)))
    start = PlanPart("merge", lambda context: context.schedule.run_pass(MERGE))
    return ModelPlan(
        payload,
        [PlanPart(AS_WRITTEN, lambda context: context.schedule.bufferize())],
        [start, packs, _exponential_parts(payload), _tiled_part(ops, threads)],
    )


def _exponential_parts(payload: Payload) -> list[PlanPart]:
    if "math.exp " not in payload.text:
        return [empty_part("")]
    return [empty_part(""), PlanPart("polynomial", lambda context: context.schedule.expand_exp(), numerics=True)]


def _tiled_part(ops: tuple[LinalgOp, ...], threads: int) -> PlanPart:
    wide, most = vector_lanes(), vector_registers()
    knobs = [Knob("tj", [wide, 2 * wide, 4 * wide])]
    rules = []
    if any(is_contraction(op) for op in ops):
        knobs += [
            Knob("mr", [1, 2, 4, 6, 8, 12]),
            Knob("nr", [wide, 2 * wide, 4 * wide]),
            Knob("kr", [2, 4, 8, 16]),
        ]
        rules = [
            Rule("a register block fits into the vector registers", lambda mr, nr: mr * nr + nr + wide <= most * wide)
        ]
    return PlanPart("vectors", partial(_tile_all, ops=ops, threads=threads), tuple(knobs), tuple(rules))


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


def _pack(context: PlanContext, *, ops: tuple[LinalgOp, ...]) -> None:
    """Copy the right operand of each product into panels as wide as a register block."""
    s = context.schedule
    for op, handle in zip(ops, match_ops(context, list(ops)), strict=True):
        if width := _panel(op, context):
            generic = handle if op.kind == "linalg.generic" else s.generalize(handle)
            pack_right(context, ContractionLoops.of(op), generic, width)
    s.cleanup("canonicalization", "linalg.tiling_canonicalization", "tensor.fold_into_pack_and_unpack")


def _tile_all(context: PlanContext, *, ops: tuple[LinalgOp, ...], threads: int) -> None:
    """Tile each operation for threads and vectors, then vectorize, bufferize and lower all of them."""
    s = context.schedule
    named = [replace(op, kind="linalg.generic") if _panel(op, context) else op for op in ops]
    if "packed" in context.parts:  # these are folded into packs, or have become panels
        named = [op for op in named if op.kind not in ("linalg.fill", "linalg.transpose")]
    for op, handle in zip(named, match_ops(context, named), strict=True):
        shared = shared_loop(op, threads)
        own = op if shared is None else _share(op, shared, threads)
        sizes = tile_sizes(own, context)
        if _panel(op, context):
            loops = ContractionLoops.of(op)
            sizes[loops.column] = 1
        if any(sizes):
            generic = handle if op.kind == "linalg.generic" else s.generalize(handle)
            if shared is not None:
                generic, _ = s.distribute(generic, threads, shared)
            s.tile(generic, sizes)
    s.cleanup()
    s.cleanup("canonicalization", "linalg.fold_unit_extent_dims_via_slices")
    s.vectorize_all("linalg.generic")
    hoist_accumulators(s)
    if "packed" in context.parts:
        s.lower_relayouts()
    s.bufferize()
    s.lower()


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
    if not sizes:
        return []
    wanted = _contraction_tile(op, context) if is_contraction(op) else {len(sizes) - 1: (context["tj"], False)}
    for loop, (limit, any_number) in wanted.items():
        sizes[loop] = _divisor(op.sizes[loop], limit, any_number=any_number)
    return sizes


def _contraction_tile(op: LinalgOp, context: PlanContext) -> dict[int, tuple[int, bool]]:
    """Returns the limit of each tiled loop, and whether any number divides it or only powers of two.

    Rows are of the operand that is not read by column, so that a block is an outer product.
    """
    free = [i for i, loop in enumerate(op.loops) if loop not in op.reductions]
    if not free:
        return {}
    column = free[-1]
    found = {column: (context["nr"], False)} if _is_plain(op, column) else {}
    right = next((where for _, where in op.reads[:2] if op.loops[column] in re.findall(r"\w+", where)), "")
    rows = [i for i in free[:-1] if op.loops[i] not in re.findall(r"\w+", right) and _is_plain(op, i)]
    if rows:
        found[rows[-1]] = (context["mr"], True)
    sides = [part for _, where in op.reads for part in where.split(",") if "+" in part]
    added = {name for part in sides for name in re.findall(r"\w+", part)}
    sums = [i for i, loop in enumerate(op.loops) if loop in op.reductions and loop not in added]
    if sums:
        found[sums[-1]] = (context["kr"], True)
    return found


def _is_plain(op: LinalgOp, loop: int) -> bool:
    """Returns whether a loop is a plain index, or one plus another, as of a convolution, which is then tiled by 1."""
    parts = [part for _, index in (*op.reads, op.writes) for part in index.split(",")]
    mine = [part for part in parts if op.loops[loop] in re.findall(r"\w+", part)]
    return all(re.fullmatch(r"\w+(\+\w+)?", part) for part in mine)


def _divisor(size: int | None, limit: int, *, any_number: bool) -> int:
    """Returns the largest divisor of a size up to a limit; a power of two unless any number fits."""
    if size is None:
        return 1
    candidates = range(limit, 0, -1) if any_number else (1 << i for i in range(limit.bit_length() - 1, -1, -1))
    return next(number for number in candidates if size % number == 0)
