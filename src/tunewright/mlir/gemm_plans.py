"""Plan for a matmul with epilogue: packing, nesting of blocks, and sizes that fit the machine."""

from __future__ import annotations

from collections.abc import Sequence

from tunewright.backends.host import cpu
from tunewright.errors import ScheduleError
from tunewright.mlir.legality import Legality
from tunewright.mlir.nest_plans import tile_blocks, tile_in_order, tile_registers
from tunewright.mlir.payload import Payload
from tunewright.mlir.plan import Parts, PlanContext, PlanPart, SchedulePlan
from tunewright.mlir.processor import FLOAT_BYTES, vector_lanes, vector_registers
from tunewright.spaces.rule import Knob, Rule


def gemm_plan(payload: Payload, *, threads: int = 1) -> SchedulePlan:
    """Returns the plan of a matmul of known sizes: which operands are packed, how blocks nest, or the loop order."""
    kinds = [op.kind for op in payload.operations]
    if not {"M", "N", "K"} <= set(payload.sizes) or kinds[:2] != ["linalg.fill", "linalg.matmul"] or len(kinds) > 3:
        raise ScheduleError("this plan is for linalg.matmul of known sizes M, N, K, and at most one operation after it")
    packs = [_unpacked_part(payload), _packed_part(payload), _panel_part(payload)]
    nests = [PlanPart("rows", lambda context: tile_blocks(context, "rows")), _column_part(payload)]
    sequences: list[Parts] = [[packs, nests, _register_part(payload, threads)]]
    if threads == 1:
        sequences.append([_loop_order_part(payload)])
    return SchedulePlan(payload, *sequences)


def _divides(size: int, knob: str, what: str) -> Rule:
    reason = f"{knob} divides the {size} {what}"
    return Rule(reason, {"mr": lambda mr: size % mr == 0, "nr": lambda nr: size % nr == 0,
                         "kr": lambda kr: size % kr == 0}[knob])  # fmt: skip


def _limits_padding(size: int, knob: str) -> Rule:
    """Returns a rule that limits padding to whole blocks, which is wasted work."""
    reason = f"whole blocks of {knob} are at most half more than {size}"
    return Rule(reason, {"mr": lambda mr: 2 * (-size % mr) <= size, "nr": lambda nr: 2 * (-size % nr) <= size,
                         "kr": lambda kr: 2 * (-size % kr) <= size}[knob])  # fmt: skip


def _unpacked_part(payload: Payload) -> PlanPart:
    m, n, k = (payload.sizes[name] for name in "MNK")
    rules = (_divides(m, "mr", "rows"), _divides(n, "nr", "columns"), _divides(k, "kr", "terms"))
    return PlanPart("unpacked", lambda context: None, rules=rules)


def _packed_part(payload: Payload) -> PlanPart:
    """Copy the columns of b into panels as wide as a register block."""
    m, n, k = (payload.sizes[name] for name in "MNK")
    rules = (_divides(m, "mr", "rows"), _limits_padding(n, "nr"), _divides(k, "kr", "terms"))
    return PlanPart(
        "packed", lambda context: _pack(context, [0, context["nr"], 0], ()), (Knob("pk", [4, 8, 16, 32, 64]),), rules
    )


def _panel_part(payload: Payload) -> PlanPart:
    """Copy a and b into panels padded to whole blocks; works for any size."""
    rules = tuple(_limits_padding(payload.sizes[name], knob) for name, knob in (("M", "mr"), ("N", "nr"), ("K", "kr")))
    return PlanPart(
        "panels", lambda context: _pack(context, [context["mr"], context["nr"], context["kr"]], (1, 0)), rules=rules
    )


def _pack(context: PlanContext, sizes: Sequence[int], inner: Sequence[int]) -> None:
    s = context.schedule
    packed = s.pack(s.match("linalg.matmul")[0], sizes)
    s.pack_transpose(s.producer(packed, 1), packed, [1, 0], inner)
    s.cleanup("canonicalization", "linalg.tiling_canonicalization", "tensor.fold_into_pack_and_unpack")


def _column_part(payload: Payload) -> PlanPart:
    """Blocks of columns that stay in cache while the kernel iterates over the rows."""
    n, k, l2 = payload.sizes["N"], payload.sizes["K"], cpu().limits.get("l2", 1 << 20)
    rules = (
        Rule("a column block is made of several register blocks", lambda nc, nr: (nc % nr == 0) & (nc > nr)),
        Rule("column blocks are all of one size", lambda nc, nr: (n + -n % nr) % nc == 0),
        Rule("there is more than one column block", lambda nc: nc < n),
        Rule(f"the columns of b in a block fit into L2 ({l2 >> 10} KiB)", lambda nc: nc * k * FLOAT_BYTES <= l2),
    )
    knob = Knob("nc", [32, 64, 96, 128, 192, 256, 384, 512, 768, 1024])
    return PlanPart("columns", lambda context: tile_blocks(context, "columns"), (knob,), rules)


def _register_block(payload: Payload) -> tuple[tuple[Knob, ...], tuple[Rule, ...]]:
    """Returns knobs and rules of the register block."""
    wide, most = vector_lanes(), vector_registers()
    knobs = (
        Knob("mr", [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16]),
        # Vectors whose width is not a power of two are scalarized.
        Knob(
            "nr", [*([wide // 4, wide // 2] if payload.sizes["N"] < 2 * wide else []), *(wide << i for i in range(4))]
        ),
        Knob("kr", [1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 21, 32]),
    )
    rules = (
        Rule(
            f"sums, a row of b and an element of a fit into {most} vector registers",
            lambda mr, nr: mr * nr + nr + wide <= most * wide,
        ),
        Rule("at most 1024 multiplications are unrolled", lambda mr, nr, kr: mr * nr * kr <= 1024 * wide),
    )
    return knobs, rules


def _register_part(payload: Payload, threads: int) -> PlanPart:
    """The innermost block, unrolled and kept in vector registers over the whole k loop."""
    m, n, k = (payload.sizes[name] for name in "MNK")
    l2 = cpu().limits.get("l2", 1 << 20)
    knobs, rules = _register_block(payload)
    rules += (
        Rule("there is more than one register block", lambda mr, nr: (mr < m) | (nr < n)),
        Rule(
            f"rows of a and columns of b fit into L2 ({l2 >> 10} KiB)", lambda mr, nr: (mr + nr) * k * FLOAT_BYTES <= l2
        ),
    )
    return PlanPart("registers", lambda context: tile_registers(context, threads), knobs, rules)


def _loop_order_part(payload: Payload) -> PlanPart:
    """Blocks in loops of any legal order, with the epilogue unfused; reads b once, in memory order."""
    knobs, rules = _register_block(payload)
    m, n, k = (payload.sizes[name] for name in "MNK")
    legal = [
        "".join("ijk"[payload.operations[1].loops.index(loop)] for loop in order)
        for order in Legality(payload).loop_orders(payload.operations[1].name)
    ]
    rules += (_divides(m, "mr", "rows"), _divides(n, "nr", "columns"), _divides(k, "kr", "terms"))
    return PlanPart("ordered", tile_in_order, (*knobs, Knob("order", legal)), rules, fuses=False)
