"""Products: the plan for matrix products with what follows them: what is packed, how blocks nest, what sizes fit."""

from __future__ import annotations

from collections.abc import Sequence

from tunewright.backends.host import cpu
from tunewright.backends.mlir.legality import Legality
from tunewright.backends.mlir.nests import in_order, nest, to_registers
from tunewright.backends.mlir.plan import Part, Parts, Plan, Work
from tunewright.backends.mlir.processor import FLOAT, lanes, registers
from tunewright.backends.mlir.writing import Payload
from tunewright.errors import ScheduleError
from tunewright.spaces.rule import Knob, Rule


def product_plan(payload: Payload, *, threads: int = 1) -> Plan:
    """Structures for a product of known sizes: what is packed, how blocks are nested, or loops in some order."""
    kinds = [one.kind for one in payload.operations]
    if not {"M", "N", "K"} <= set(payload.sizes) or kinds[:2] != ["linalg.fill", "linalg.matmul"] or len(kinds) > 3:
        raise ScheduleError("this plan is for linalg.matmul of known sizes M, N, K, and at most one operation after it")
    packs = [_unpacked(payload), _packed(payload), _panels(payload)]
    nests = [Part("rows", lambda work: nest(work, "rows")), _columns(payload)]
    ways: list[Parts] = [[packs, nests, _registers(payload, threads)]]
    if threads == 1:
        ways.append([_ordered(payload)])
    return Plan(payload, *ways)


def _divides(size: int, knob: str, what: str) -> Rule:
    reason = f"{knob} divides the {size} {what}"
    return Rule(reason, {"mr": lambda mr: size % mr == 0, "nr": lambda nr: size % nr == 0,
                         "kr": lambda kr: size % kr == 0}[knob])  # fmt: skip


def _little(size: int, knob: str) -> Rule:
    """Padding to whole blocks is work for nothing."""
    reason = f"whole blocks of {knob} are at most half more than {size}"
    return Rule(reason, {"mr": lambda mr: 2 * (-size % mr) <= size, "nr": lambda nr: 2 * (-size % nr) <= size,
                         "kr": lambda kr: 2 * (-size % kr) <= size}[knob])  # fmt: skip


def _unpacked(payload: Payload) -> Part:
    m, n, k = (payload.sizes[name] for name in "MNK")
    rules = (_divides(m, "mr", "rows"), _divides(n, "nr", "columns"), _divides(k, "kr", "terms"))
    return Part("unpacked", lambda work: None, rules=rules)


def _packed(payload: Payload) -> Part:
    """Columns of b copied into panels as wide as a register block."""
    m, n, k = (payload.sizes[name] for name in "MNK")
    rules = (_divides(m, "mr", "rows"), _little(n, "nr"), _divides(k, "kr", "terms"))
    return Part("packed", lambda work: _pack(work, [0, work["nr"], 0], ()), (Knob("pk", [4, 8, 16, 32, 64]),), rules)


def _panels(payload: Payload) -> Part:
    """Both a and b copied into panels, padded to whole blocks: any size will do."""
    rules = tuple(_little(payload.sizes[name], knob) for name, knob in (("M", "mr"), ("N", "nr"), ("K", "kr")))
    return Part("panels", lambda work: _pack(work, [work["mr"], work["nr"], work["kr"]], (1, 0)), rules=rules)


def _pack(work: Work, sizes: Sequence[int], inner: Sequence[int]) -> None:
    s = work.schedule
    packed = s.pack(s.match("linalg.matmul")[0], sizes)
    s.pack_transpose(s.producer(packed, 1), packed, [1, 0], inner)
    s.tidy("canonicalization", "linalg.tiling_canonicalization", "tensor.fold_into_pack_and_unpack")


def _columns(payload: Payload) -> Part:
    """Blocks of columns that stay in a cache while all rows pass by."""
    n, k, l2 = payload.sizes["N"], payload.sizes["K"], cpu().limits.get("l2", 1 << 20)
    rules = (
        Rule("a column block is made of several register blocks", lambda nc, nr: (nc % nr == 0) & (nc > nr)),
        Rule("column blocks are all of one size", lambda nc, nr: (n + -n % nr) % nc == 0),
        Rule("there is more than one column block", lambda nc: nc < n),
        Rule(f"the columns of b in a block fit into L2 ({l2 >> 10} KiB)", lambda nc: nc * k * FLOAT <= l2),
    )
    knob = Knob("nc", [32, 64, 96, 128, 192, 256, 384, 512, 768, 1024])
    return Part("columns", lambda work: nest(work, "columns"), (knob,), rules)


def _block(payload: Payload) -> tuple[tuple[Knob, ...], tuple[Rule, ...]]:
    """The register block's knobs, and what any such block must keep."""
    wide, most = lanes(), registers()
    knobs = (
        Knob("mr", [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16]),
        # Vectors whose width is no power of two are taken apart, number by number.
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


def _registers(payload: Payload, threads: int) -> Part:
    """The innermost block, unrolled and kept in vector registers while k passes by."""
    m, n, k = (payload.sizes[name] for name in "MNK")
    l2 = cpu().limits.get("l2", 1 << 20)
    knobs, rules = _block(payload)
    rules += (
        Rule("there is more than one register block", lambda mr, nr: (mr < m) | (nr < n)),
        Rule(f"rows of a and columns of b fit into L2 ({l2 >> 10} KiB)", lambda mr, nr: (mr + nr) * k * FLOAT <= l2),
    )
    return Part("registers", lambda work: to_registers(work, threads), knobs, rules)


def _ordered(payload: Payload) -> Part:
    """Blocks in loops of any legal order, what follows on its own: where b is read once, in the order it lies."""
    knobs, rules = _block(payload)
    m, n, k = (payload.sizes[name] for name in "MNK")
    legal = [
        "".join("ijk"[payload.operations[1].loops.index(one)] for one in order)
        for order in Legality(payload).orders(payload.operations[1].name)
    ]
    rules += (_divides(m, "mr", "rows"), _divides(n, "nr", "columns"), _divides(k, "kr", "terms"))
    return Part("ordered", in_order, (*knobs, Knob("order", legal)), rules, fuses=False)
