"""Plan for chains of operations that share outer loops: softmax, layer norm, convolution, attention."""

from __future__ import annotations

from functools import partial

from tunewright.backends.host import cpu
from tunewright.mlir.handles import Handle
from tunewright.mlir.legality import Legality
from tunewright.mlir.nest_plans import VECTOR_PATTERNS
from tunewright.mlir.payload import LinalgOp, Payload
from tunewright.mlir.plan import PlanContext, PlanPart, SchedulePlan
from tunewright.mlir.processor import FLOAT_BYTES, vector_lanes, vector_registers
from tunewright.spaces.rule import Knob, Rule


def is_contraction(op: LinalgOp) -> bool:
    """Returns whether the operation is a contraction."""
    return sum(bool(op.reductions & set(where.replace("+", ",").split(","))) for _, where in op.reads) > 1


def is_row_reduction(op: LinalgOp) -> bool:
    """Returns whether the operation reduces a row (sum or maximum)."""
    return bool(op.reductions) and not is_contraction(op)


def row_plan(payload: Payload, *, threads: int = 1) -> SchedulePlan:
    """Returns a plan that fuses all operations into their shared loops and vectorizes along rows.

    Several threads share the outer loops. With row reductions there are two structures: in order, and side by side in
    vectors, which changes the order of additions and so the last digits.
    """
    ops = [op for op in payload.operations if op.reads]
    if not any(is_row_reduction(op) for op in ops):
        return SchedulePlan(payload, [_fused_part(payload, "fused", threads)])
    return SchedulePlan(payload, [[_fused_part(payload, name, threads) for name in ("in order", "side by side")]])


def _fused_part(payload: Payload, name: str, threads: int) -> PlanPart:
    ops = [op for op in payload.operations if op.reads]
    last, depth, wide = ops[-1], Legality(payload).fusion_depth(), vector_lanes()
    whole = depth == len(last.loops) - len(last.reductions) and not any(is_row_reduction(op) for op in ops)
    row, rows = last.loops[depth - 2 if whole else depth - 1], last.sizes[depth - 2 if whole else depth - 1]
    products = [op for op in ops if is_contraction(op)]
    knobs, rules = [Knob("mr", [1, 2, 4, 6, 8, 12] if products and rows else [1])], []
    if rows:
        rules.append(Rule(f"mr divides the {rows} of {row}", lambda mr: rows % mr == 0))
    if products:
        knobs += [Knob("nr", [wide, 2 * wide, 4 * wide]), Knob("kr", [1, 2, 4, 8, 16, 32])]
        widths = {op.sizes[_column_loop(op)] or wide for op in products}
        terms = {op.sizes[-1] or 1 for op in products}
        most = vector_registers() * wide
        rules += [
            Rule("nr divides every row of a product", lambda nr: sum(width % nr for width in widths) == 0),
            Rule("kr divides every sum of products", lambda kr: sum(count % kr for count in terms) == 0),
            Rule("a register block fits into the vector registers", lambda mr, nr: mr * nr + nr + wide <= most),
        ]
    passes = [op for op in ops if len(op.loops) > depth and not op.reductions]
    if passes and not products:
        knobs.append(Knob("prefetch", list(range(len(passes) + 1))))
    lengths = {op.sizes[-1] or wide for op in ops if not (is_contraction(op) or whole) and len(op.loops) > depth}
    if lengths:
        l1 = cpu().limits.get("l1", 32 << 10)
        knobs.append(Knob("tj", [wide, 2 * wide, 4 * wide, 8 * wide]))
        rules += [
            Rule("tj divides every row", lambda tj: sum(length % tj for length in lengths) == 0),
            Rule(f"a row in vectors fits into L1 ({l1 >> 10} KiB)", lambda mr, tj: mr * tj * FLOAT_BYTES <= l1),
        ]

    def violation(payload: Payload) -> str:
        return "" if depth else "its operations share no loop, because one reads what another has not written yet"

    side_by_side = name == "side by side"
    free = all(op.loops[-1] in Legality(payload).parallel_loops(op.name) for op in ops if is_row_reduction(op))
    using = "for" if threads == 1 else "forall"
    steps = partial(_schedule_rows, depth=depth, whole=whole, side_by_side=side_by_side, using=using)
    return PlanPart(name, steps, tuple(knobs), tuple(rules), numerics=side_by_side and not free, violation=violation)


def _column_loop(op: LinalgOp) -> int:
    """Returns the index of the last loop that is not a reduction."""
    return max(i for i, loop in enumerate(op.loops) if loop not in op.reductions)


def _schedule_rows(context: PlanContext, *, depth: int, whole: bool, side_by_side: bool, using: str) -> None:
    s, ops = context.schedule, [op for op in context.payload.operations if op.reads]
    sizes = [1] * depth
    sizes[-2 if whole else -1] = context["mr"]
    if whole:
        sizes[-1] = context["nr"]
    last = match_ops(context, ops)[-1]
    s.tile_and_fuse(last, sizes, using)
    s.cleanup()
    s.cleanup("canonicalization", "tensor.fold_tensor_empty")
    loops = [
        _tile_for_vectors(context, op, handle, (depth, whole, side_by_side))
        for op, handle in zip(ops, match_ops(context, ops), strict=True)
    ]
    passes = [loop for loop in loops if loop]
    if context.knobs.get("prefetch"):
        s.prefetch(passes[context["prefetch"] - 1])
    s.cleanup()
    s.cleanup("canonicalization", "linalg.fold_unit_extent_dims_via_slices")
    s.vectorize_all()
    for patterns in VECTOR_PATTERNS:
        s.cleanup("canonicalization", *patterns)
    s.hoist()
    s.bufferize()
    s.lower()


def match_ops(context: PlanContext, ops: list[LinalgOp]) -> list[Handle]:
    """Returns a handle for each operation, in program order."""
    s, named = context.schedule, [op.kind for op in ops]
    pools = {name: s.match(name, count=named.count(name)) for name in dict.fromkeys(named)}
    return [pools[name].pop(0) for name in named]


def _tile_for_vectors(
    context: PlanContext, op: LinalgOp, handle: Handle, tiling: tuple[int, bool, bool]
) -> Handle | None:
    """Tile an operation for vectors: contractions by register block, rows by length.

    Returns the loop over a row if it is no reduction.
    """
    s, (depth, whole, side_by_side) = context.schedule, tiling
    if is_contraction(op):
        sizes = [0] * len(op.loops)
        if _column_loop(op) >= depth:
            sizes[_column_loop(op)] = context["nr"]
        for i, loop in enumerate(op.loops):
            if loop in op.reductions:
                sizes[i] = context["kr"] if i == len(op.loops) - 1 else 1
        s.tile(handle, sizes)
    elif is_row_reduction(op) and side_by_side:
        s.tile_reduction(handle, [0] * (len(op.loops) - 1) + [context["tj"]])
    elif not whole and len(op.loops) > depth:
        _, loops = s.tile(handle, [0] * (len(op.loops) - 1) + [context["tj"]])
        return None if op.reductions else loops[-1]
    return None
