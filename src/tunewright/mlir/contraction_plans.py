"""Plan for batches of products and for convolutions: one contraction in blocks, its right operand packed or not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod

from tunewright.backends.host import cpu
from tunewright.errors import ScheduleError
from tunewright.mlir.handles import Handle
from tunewright.mlir.nest_plans import hoist_accumulators
from tunewright.mlir.payload import LinalgOp, Payload
from tunewright.mlir.plan import PlanContext, PlanPart, SchedulePlan, empty_part
from tunewright.mlir.processor import FLOAT_BYTES, vector_lanes, vector_registers
from tunewright.spaces.rule import Knob, Rule

REUSES = 96
"""Rows that read the right operand from which on packing it always pays."""


@dataclass(frozen=True)
class ContractionLoops:
    """Loops of a contraction: those around it, its rows and columns, and its sums; `right` is read by column."""

    op: LinalgOp
    around: tuple[int, ...]
    row: int
    column: int
    sums: tuple[int, ...]
    right: int

    @classmethod
    def of(cls, op: LinalgOp) -> ContractionLoops:
        """Returns the loops of an operation; raises an error that says what does not fit."""
        if (reason := why_not_contraction(op)) or len(op.loops) < 3:
            raise ScheduleError(
                f"{op.name} ({op.kind}) is no contraction in blocks: {reason or 'it has too few loops'}"
            )
        free = [i for i, loop in enumerate(op.loops) if loop not in op.reductions]
        *around, row, column = free
        sums = tuple(i for i, loop in enumerate(op.loops) if loop in op.reductions)
        return cls(op, tuple(around), row, column, sums, _right_operand(op, row, column))

    def size(self, loop: int) -> int | None:
        """Returns the size of a loop; None if it is known only at a call."""
        return self.op.sizes[loop]

    def right_index(self) -> list[str]:
        """Returns the loops that the right operand is read by, one for each of its dimensions."""
        return self.op.reads[self.right][1].split(",")

    def right_around(self) -> list[int]:
        """Returns the loops around the contraction that the right operand depends on."""
        return [loop for loop in self.around if self.op.loops[loop] in self.right_index()]


def why_not_contraction(op: LinalgOp) -> str:
    """Returns why an operation cannot be scheduled as a contraction in blocks, or ""."""
    free = [loop for loop in op.loops if loop not in op.reductions]
    if len(op.reads) != 3 or not op.reductions or len(free) < 2:
        return "it does not sum products of two operands over rows and columns"
    if list(op.loops[: len(free)]) != free or op.writes[1] != ",".join(free):
        return "its result is not indexed by its loops in order, or a sum is not innermost"
    if op.sizes[len(free) - 1] is None or any(op.sizes[op.loops.index(loop)] is None for loop in op.reductions):
        return "the size of a row or of a sum is known only at a call"
    if _right_operand(op, len(free) - 2, len(free) - 1) < 0:
        return "no operand is read by columns alone, with plain indices"
    return ""


def _right_operand(op: LinalgOp, row: int, column: int) -> int:
    """Returns the operand with the column, but not the row, among its plain indices; -1 if there is none."""
    for i, (_, index) in enumerate(op.reads[:2]):
        parts = index.split(",")
        if op.loops[column] in parts and op.loops[row] not in index and all(part in op.loops for part in parts):
            return i
    return -1


def contraction_plan(payload: Payload, *, threads: int = 1, reuses: float = REUSES) -> SchedulePlan:
    """Returns the plan for a fill, a contraction and at most one operation after it: a batch, a convolution.

    The right operand is copied into panels, which are aligned whatever the arrays are; it may also be read as it is
    if fewer than `reuses` rows use it. Blocks of a row or of a column come first. Several threads share the outermost
    loop.
    """
    kinds = [op.kind for op in payload.operations]
    if kinds[:1] != ["linalg.fill"] or not 2 <= len(kinds) <= 3 or kinds[2:] not in ([], ["linalg.generic"]):
        raise ScheduleError("this plan is for linalg.fill, a contraction, and at most one linalg.generic after it")
    loops = ContractionLoops.of(payload.operations[1])
    packs = [] if _must_pack(loops, reuses) else [empty_part("unpacked")]
    packs.append(_packed_part(loops))
    nests = [PlanPart(name, partial(_tile, loops=loops, order=name)) for name in ("rows", "columns")]
    return SchedulePlan(payload, [packs, nests, _register_part(loops, threads)])


def _must_pack(loops: ContractionLoops, reuses: float) -> bool:
    """Returns whether packing always pays: then the search does not depend on how the arrays of a trial are aligned."""
    shared = [loops.size(loop) for loop in (*loops.around, loops.row) if loop not in loops.right_around()]
    known = None not in shared and not any(loops.size(loop) is None for loop in loops.around)
    columns = loops.size(loops.column) or 1
    return known and columns % vector_lanes() == 0 and columns > vector_lanes() and prod(filter(None, shared)) >= reuses


def _packed_part(loops: ContractionLoops) -> PlanPart:
    columns = loops.size(loops.column) or 1
    rule = Rule(f"there is more than one panel of the {columns} columns", lambda nr: nr < columns)
    unknown = [loops.op.loops[loop] for loop in (*loops.around, loops.row) if loops.size(loop) is None]
    reason = f"panels need known sizes, and that of {', '.join(unknown)} is known only at a call" if unknown else ""
    return PlanPart("packed", lambda context: _pack(context, loops), rules=(rule,), violation=lambda payload: reason)


def _register_part(loops: ContractionLoops, threads: int) -> PlanPart:
    """The innermost block, unrolled and kept in vector registers over the loops of the sums."""
    wide, most = vector_lanes(), vector_registers()
    l2 = cpu().limits.get("l2", 1 << 20)
    rows, columns, terms = (loops.size(loop) for loop in (loops.row, loops.column, loops.sums[-1]))
    depth = 1
    for loop in loops.sums:
        depth *= loops.size(loop) or 1
    knobs = (
        Knob("mr", [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14] if rows else [1]),
        Knob("nr", [*([wide // 4, wide // 2] if (columns or 1) % wide else []), *(wide << i for i in range(3))]),
        Knob("kr", [1, 2, 3, 4, 6, 8, 12, 16, 32]),
    )
    rules: tuple[Rule, ...] = (
        Rule(f"mr divides the {rows} rows", lambda mr: (rows or 1) % mr == 0),
        Rule(f"nr divides the {columns} columns", lambda nr: columns % nr == 0),
        Rule(f"kr divides the {terms} terms", lambda kr: terms % kr == 0),
        Rule("multiplications become multiply-adds: kr is more than 1", lambda kr: (kr > 1) | (terms == 1)),
        Rule(
            f"sums, a row of the panel and an element fit into {most} vector registers",
            lambda mr, nr: mr * nr + nr + wide <= most * wide,
        ),
        Rule("at most 1024 multiplications are unrolled", lambda mr, nr, kr: mr * nr * kr <= 1024 * wide),
        Rule(f"a panel fits into L2 ({l2 >> 10} KiB)", lambda nr: nr * depth * FLOAT_BYTES <= l2),
    )
    if all(loops.size(loop) == 1 for loop in loops.around) and rows is not None:
        rules += (Rule("there is more than one register block", lambda mr, nr: (mr < rows) | (nr < columns)),)
    return PlanPart("registers", partial(_finish, loops=loops, threads=threads), knobs, rules)


def _generalize_product(context: PlanContext) -> Handle:
    """Returns the contraction as a generic operation: unit dimensions of named ones are not dropped."""
    s, kind = context.schedule, context.payload.operations[1].kind
    if kind == "linalg.generic":
        return s.match(kind, count=len(context.payload.operations) - 1)[0]
    return s.generalize(s.match(kind)[0])


def pack_right(context: PlanContext, loops: ContractionLoops, product: Handle, width: int) -> None:
    """Copy the right operand of a contraction into panels of that many columns, one after the other."""
    s, sizes, index = context.schedule, [0] * len(loops.op.loops), loops.right_index()
    sizes[loops.column] = width
    packed = s.pack(product, sizes)
    column = index.index(loops.op.loops[loops.column])
    outside = [i for i, part in enumerate(index) if loops.op.loops.index(part) in loops.around]
    rest = [i for i in range(len(index)) if i != column and i not in outside]
    order = [*outside, column, *rest]
    if order != sorted(order):
        s.pack_transpose(s.producer(packed, loops.right), packed, order)


def _pack(context: PlanContext, loops: ContractionLoops) -> None:
    s = context.schedule
    pack_right(context, loops, _generalize_product(context), context["nr"])
    s.cleanup("canonicalization", "linalg.tiling_canonicalization", "tensor.fold_into_pack_and_unpack")
    context.handles["pack"] = s.match("linalg.pack")[0]


def _tile(context: PlanContext, *, loops: ContractionLoops, order: str) -> None:
    """Tile the last operation in nested blocks, and fuse its producers into each loop."""
    s, packed = context.schedule, "packed" in context.parts
    product = None if packed else _generalize_product(context)
    generics = s.match("linalg.generic", count=len(context.payload.operations) - 1)
    after, product = generics[1:], generics[0] if packed else product or generics[0]
    chain = [*after, *(s.match("linalg.unpack") if packed else []), product, *s.match("linalg.fill")]
    blocks = [(loop, 1) for loop in loops.around if loops.size(loop) != 1]
    inner = [(loops.row, context["mr"]), (loops.column, context["nr"])]
    inner = [(loop, size) for loop, size in inner if size != loops.size(loop)] or inner[:1]
    blocks += inner if order == "rows" else inner[::-1]
    for loop, size in blocks:
        sizes = [size if i == loop else 0 for i in range(loops.column + 1)]
        tile, (around,) = s.tile(chain[0], sizes, "forall")
        tiles = [tile]
        for producer in chain[1:]:
            tile, around = s.fuse(producer, around)
            tiles.append(tile)
        if packed and loop in loops.right_around():
            context.handles["pack"], around = s.fuse(context.op("pack"), around)
        if loop == inner[0][0] or (order == "columns" and loop == inner[-1][0]):
            context.handles.setdefault("inner", around)
        chain = tiles
    context.handles |= {"product": chain[-2], "blocks": len(blocks)}


def _finish(context: PlanContext, *, loops: ContractionLoops, threads: int) -> None:
    """Tile the sums, vectorize, keep accumulators in registers, bufferize and lower."""
    s = context.schedule
    sizes = [0] * len(loops.op.loops)
    for loop in loops.sums:
        sizes[loop] = context["kr"] if loop == loops.sums[-1] else 1
    s.tile(context.op("product"), sizes)
    s.cleanup()
    s.cleanup("canonicalization", "linalg.fold_unit_extent_dims_via_slices")
    inner = context.op("inner")
    if "packed" in context.parts:
        copy = s.lower_pack(s.match("linalg.pack")[0])
        s.vectorize(s.tile(copy, [1] * len(loops.right_index()))[0])
        s.vectorize(s.match("linalg.unpack", inside=inner)[0])
    s.vectorize(inner)
    hoist_accumulators(s)
    s.bufferize()
    blocks = int(context.handles["blocks"])
    s.sequentialize(blocks, [blocks - 1] if threads > 1 else [])
    s.lower()
