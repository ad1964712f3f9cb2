"""Chains of elementwise operations after a product, such as a bias and an activation, which its blocks can include."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tunewright.mlir.payload import LinalgOp, PlacedOp


@dataclass(frozen=True)
class EpilogueChain:
    """Operations by number: those after a product, the last one first, the product, and the fill before it.

    `unpacked` is the operand of the one after the product that reads it out of panels; None if it reads it directly.
    """

    after: tuple[int, ...]
    product: int
    fill: int | None
    unpacked: int | None = None


def epilogue_chain(ops: Sequence[PlacedOp], product: int, unpacks: Mapping[str, str]) -> EpilogueChain | None:
    """Returns the chain of a product; None if nothing but its sums can be computed block by block.

    Each operation is read by the next one alone, element by element, so that a block needs no other block. `unpacks`
    has results of unpacking with what is unpacked.
    """
    op = ops[product].op
    name = next((result for result, source in unpacks.items() if source == op.name), op.name)
    direct, after, unpacked = name == op.name, list[int](), None
    if direct and ops[product].escapes:
        return None
    while (user := _only_user(ops, name)) is not None:
        operand = _elementwise_operand(ops[user].op, name)
        if operand is None or (direct and not after and ops[user].op.sizes != _result_sizes(op)):
            break
        if not direct and not after:
            unpacked = operand
        after.insert(0, user)
        name = ops[user].op.name
        if ops[user].escapes:
            break
    return EpilogueChain(tuple(after), product, _fill(ops, op), unpacked) if after else None


def _result_sizes(op: LinalgOp) -> tuple[int | None, ...]:
    """Returns the sizes of an operation's result; an empty one if it is not indexed by loops alone."""
    index = op.writes[1].split(",")
    return tuple(op.sizes[op.loops.index(loop)] for loop in index) if set(index) <= set(op.loops) else ()


def _only_user(ops: Sequence[PlacedOp], name: str) -> int | None:
    """Returns the operation that alone reads a result, and reads it once."""
    users = [i for i, placed in enumerate(ops) for read, _ in placed.op.reads if read == name]
    return users[0] if len(users) == 1 else None


def _elementwise_operand(op: LinalgOp, name: str) -> int | None:
    """Returns which operand of an elementwise operation is that result, read by its loops in order."""
    in_order = ",".join(op.loops)
    if op.reductions or op.kind != "linalg.generic" or op.writes[1] != in_order:
        return None
    reads = [number for number, (read, index) in enumerate(op.reads) if read == name and index == in_order]
    return reads[0] if reads else None


def _fill(ops: Sequence[PlacedOp], op: LinalgOp) -> int | None:
    """Returns the fill that a product adds to, if nothing else reads it."""
    start = op.reads[-1][0]
    fills = [i for i, placed in enumerate(ops) if placed.op.name == start and placed.op.kind == "linalg.fill"]
    return fills[0] if fills and _only_user(ops, start) is not None else None
