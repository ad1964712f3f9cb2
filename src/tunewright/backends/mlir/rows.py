"""Rows: the plan for chains of operations that share their outer loops: softmax, layer norm, convolution, attention."""

from __future__ import annotations

from functools import partial

from tunewright.backends.host import cpu
from tunewright.backends.mlir.handles import Handle
from tunewright.backends.mlir.legality import Legality
from tunewright.backends.mlir.nests import UNITS
from tunewright.backends.mlir.plan import Part, Plan, Work
from tunewright.backends.mlir.processor import FLOAT, lanes, registers
from tunewright.backends.mlir.writing import Operation, Payload
from tunewright.spaces.rule import Knob, Rule


def is_product(op: Operation) -> bool:
    """Whether it adds up products, which registers can be kept busy with."""
    return sum(bool(op.sums & set(where.replace("+", ",").split(","))) for _, where in op.reads) > 1


def is_row_sum(op: Operation) -> bool:
    """Whether it adds up, or takes the largest of, a row."""
    return bool(op.sums) and not is_product(op)


def row_plan(payload: Payload) -> Plan:
    """All operations fused into the loops they may share; inside, vectors along rows.

    Where rows are summed there are two structures: in order, and side by side in vectors, which adds up in another
    order and so changes the last digits.
    """
    ops = [op for op in payload.operations if op.reads]
    if not any(is_row_sum(op) for op in ops):
        return Plan(payload, [_fused(payload, "fused")])
    return Plan(payload, [[_fused(payload, "in order"), _fused(payload, "side by side")]])


def _fused(payload: Payload, name: str) -> Part:
    ops = [op for op in payload.operations if op.reads]
    last, depth, wide = ops[-1], Legality(payload).fusable(), lanes()
    whole = depth == len(last.loops) - len(last.sums) and not any(is_row_sum(op) for op in ops)
    row, rows = last.loops[depth - 2 if whole else depth - 1], last.sizes[depth - 2 if whole else depth - 1]
    products = [op for op in ops if is_product(op)]
    knobs, rules = [Knob("mr", [1, 2, 4, 6, 8, 12] if products and rows else [1])], []
    if rows:
        rules.append(Rule(f"mr divides the {rows} of {row}", lambda mr: rows % mr == 0))
    if products:
        knobs += [Knob("nr", [wide, 2 * wide, 4 * wide]), Knob("kr", [1, 2, 4, 8, 16, 32])]
        widths = {op.sizes[_column(op)] or wide for op in products}
        terms = {op.sizes[-1] or 1 for op in products}
        most = registers() * wide
        rules += [
            Rule("nr divides every row of a product", lambda nr: sum(one % nr for one in widths) == 0),
            Rule("kr divides every sum of products", lambda kr: sum(one % kr for one in terms) == 0),
            Rule("a register block fits into the vector registers", lambda mr, nr: mr * nr + nr + wide <= most),
        ]
    lengths = {op.sizes[-1] or wide for op in ops if not (is_product(op) or whole) and len(op.loops) > depth}
    if lengths:
        l1 = cpu().limits.get("l1", 32 << 10)
        knobs.append(Knob("tj", [wide, 2 * wide, 4 * wide, 8 * wide]))
        rules += [
            Rule("tj divides every row", lambda tj: sum(one % tj for one in lengths) == 0),
            Rule(f"a row in vectors fits into L1 ({l1 >> 10} KiB)", lambda mr, tj: mr * tj * FLOAT <= l1),
        ]

    def objects(payload: Payload) -> str:
        return "" if depth else "its operations share no loop: what one reads another has yet to write"

    aside = name == "side by side"
    free = all(op.loops[-1] in Legality(payload).parallel(op.name) for op in ops if is_row_sum(op))
    steps = partial(_steps, depth=depth, whole=whole, aside=aside)
    return Part(name, steps, tuple(knobs), tuple(rules), numerics=aside and not free, objects=objects)


def _column(op: Operation) -> int:
    """The place of the last loop that is no sum."""
    return max(i for i, loop in enumerate(op.loops) if loop not in op.sums)


def _steps(work: Work, *, depth: int, whole: bool, aside: bool) -> None:
    s, ops = work.schedule, [op for op in work.payload.operations if op.reads]
    sizes = [1] * depth
    sizes[-2 if whole else -1] = work["mr"]
    if whole:
        sizes[-1] = work["nr"]
    last = _matched(work, ops)[-1]
    s.tile_and_fuse(last, sizes)
    s.tidy()
    s.tidy("canonicalization", "tensor.fold_tensor_empty")
    for op, handle in zip(ops, _matched(work, ops), strict=True):
        _cut(work, op, handle, (depth, whole, aside))
    s.tidy()
    s.tidy("canonicalization", "linalg.fold_unit_extent_dims_via_slices")
    s.vectorise_all()
    for patterns in UNITS:
        s.tidy("canonicalization", *patterns)
    s.hoist()
    s.bufferise()
    s.lower()


def _matched(work: Work, ops: list[Operation]) -> list[Handle]:
    """A handle for each operation, in the order of the program."""
    s, named = work.schedule, [op.kind for op in ops]
    pools = {name: s.match(name, count=named.count(name)) for name in dict.fromkeys(named)}
    return [pools[name].pop(0) for name in named]


def _cut(work: Work, op: Operation, handle: Handle, how: tuple[int, bool, bool]) -> None:
    """Tiles for vectors: of products by register block, of rows by length."""
    s, (depth, whole, aside) = work.schedule, how
    if is_product(op):
        sizes = [0] * len(op.loops)
        if _column(op) >= depth:
            sizes[_column(op)] = work["nr"]
        for i, loop in enumerate(op.loops):
            if loop in op.sums:
                sizes[i] = work["kr"] if i == len(op.loops) - 1 else 1
        s.tile(handle, sizes)
    elif is_row_sum(op) and aside:
        s.tile_reduction(handle, [0] * (len(op.loops) - 1) + [work["tj"]])
    elif not whole and len(op.loops) > depth:
        s.tile(handle, [0] * (len(op.loops) - 1) + [work["tj"]])
