"""Groups of operations that share their rows: each row is computed by all of them before the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tunewright.mlir.legality import Legality
from tunewright.mlir.payload import LinalgOp, Payload, PlacedOp
from tunewright.mlir.row_plans import is_contraction


@dataclass(frozen=True)
class RowGroup:
    """Operations in program order; the last one is tiled by `depth` loops, and the others are fused into them."""

    members: tuple[int, ...]
    depth: int


def row_groups(ops: Sequence[PlacedOp]) -> list[RowGroup]:
    """Returns the groups of two operations and more. A member but the last is used by members alone.

    An operation joins the group of its users if it shares rows with all of them.
    """
    group_of: dict[int, int] = {}
    depths: dict[int, int] = {}
    for number in reversed(range(len(ops))):
        found = _join(ops, number, group_of)
        depth = min(depths.get(found, 0), _shared_rows(ops, number, group_of, found)) if found is not None else 0
        if found is not None and depth:
            group_of[number], depths[found] = found, depth
        elif not ops[number].nested and not is_contraction(ops[number].op):
            group_of[number], depths[number] = number, _rows(ops[number].op)
    members: dict[int, list[int]] = {}
    for number in sorted(group_of):
        members.setdefault(group_of[number], []).append(number)
    return [RowGroup(tuple(numbers), depths[last]) for last, numbers in members.items() if len(numbers) > 1]


def _rows(op: LinalgOp) -> int:
    """Returns how many outer loops of an operation can be rows: all that it is indexed by, but the last."""
    return max(len(op.loops) - max(len(op.reductions), 1), 0)


def _users(ops: Sequence[PlacedOp], number: int) -> list[int]:
    name = ops[number].op.name
    return [i for i, other in enumerate(ops) if any(read == name for read, _ in other.op.reads)]


def _join(ops: Sequence[PlacedOp], number: int, group_of: dict[int, int]) -> int | None:
    """Returns the group that all users of an operation are in."""
    placed, users = ops[number], _users(ops, number)
    groups = {group_of.get(user) for user in users}
    if placed.nested or placed.escapes or is_contraction(placed.op) or len(groups) != 1:
        return None
    group = groups.pop()
    starts = group is not None and _is_start(placed.op, ops[group].op)
    return None if starts else group


def _is_start(op: LinalgOp, last: LinalgOp) -> bool:
    """Returns whether the last operation of a group adds to what another wrote, which then starts its loops."""
    return bool(last.reductions) and last.reads[-1][0] == op.name


def _shared_rows(ops: Sequence[PlacedOp], number: int, group_of: dict[int, int], group: int | None) -> int:
    """Returns how many rows an operation shares with its users in a group."""
    legality = Legality(Payload("", operations=tuple(placed.op for placed in ops)))
    name = ops[number].op.name
    users = [user for user in _users(ops, number) if group_of.get(user) == group]
    return min(legality.shared_loops(name, ops[user].op.name) for user in users)
