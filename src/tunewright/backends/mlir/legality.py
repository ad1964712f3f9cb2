"""Legality: which loop orders, parallel loops and fusions keep a payload's meaning, proven from its dependences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import permutations
from typing import Any

from tunewright.backends.mlir.writing import Operation, Payload

_UNKNOWN = 1 << 10
"""A size that stands for those known only at a call: large enough that no dependence is missed."""


@cache
def isl() -> Any:
    """The polyhedral library; None where it is not installed, and what linalg itself declares must do."""
    try:
        import islpy  # noqa: PLC0415 - an optional package
    except ImportError:
        return None
    return islpy


def reaches(name: str, op: Operation, place: str | None) -> str:
    """An operation's iterations in isl's words, under a name; with `place`, what each of them touches there."""
    bounds = " and ".join(f"0 <= {n} < {s or _UNKNOWN}" for n, s in zip(op.loops, op.sizes, strict=True))
    return f"{name}[{', '.join(op.loops)}]{f' -> R[{place}]' if place is not None else ''} : {bounds}"


@dataclass(frozen=True)
class Legality:
    """What may be done to one payload. `reassociate` allows sums to be added up in any order."""

    payload: Payload
    reassociate: bool = False

    def parallel(self, name: str) -> frozenset[str]:
        """The loops of an operation whose iterations may run at once."""
        return _parallel(self.payload.find(name), self.reassociate)

    def orders(self, name: str) -> list[tuple[str, ...]]:
        """The orders in which an operation's loops may stand, its own first."""
        op = self.payload.find(name)
        return [order for order in permutations(op.loops) if self.allows(name, order)]

    def allows(self, name: str, order: tuple[str, ...]) -> bool:
        """Whether an operation's loops may stand in that order."""
        return _allowed(self.payload.find(name), tuple(order), self.reassociate)

    def shared(self, producer: str, consumer: str) -> int:
        """How many of their outermost loops two operations may share: fused that deep, nothing is read too early."""
        first, then = self.payload.find(producer), self.payload.find(consumer)
        return _shared(first, then)

    def fusable(self) -> int:
        """How many outermost loops all operations may share with the last one; 0 if they cannot be fused as a whole."""
        ops = self.payload.operations
        depths = [
            self.shared(first.name, then.name)
            for i, then in enumerate(ops)
            for first in ops[:i]
            if any(read == first.name for read, _ in then.reads)
        ]
        return min([len(set(ops[-1].loops) - ops[-1].sums), *depths])


@lru_cache(maxsize=256)
def _dependences(op: Operation) -> Any:
    """From each iteration to the next that needs what it wrote, as an isl map."""
    library = isl()
    context = library.Context()
    wanted = f"{{ {reaches('S', op, op.writes[1])} }}"
    if not op.sums:  # each place is written once, and only its own iteration reads it
        return library.UnionMap.read_from_str(context, "{ }"), context
    access = library.UnionAccessInfo.from_sink(library.UnionMap.read_from_str(context, wanted))
    access = access.set_must_source(library.UnionMap.read_from_str(context, wanted))
    order = library.UnionMap.read_from_str(context, f"{{ S[{', '.join(op.loops)}] -> [{', '.join(op.loops)}] }}")
    flow = access.set_schedule_map(order).compute_flow()
    return flow.get_must_dependence(), context


@lru_cache(maxsize=1024)
def _parallel(op: Operation, reassociate: bool) -> frozenset[str]:
    if reassociate:
        return frozenset(op.loops)
    if isl() is None or not op.sums:
        return frozenset(op.loops) - op.sums
    found, context = _dependences(op)
    moved = found.deltas()
    return frozenset(name for i, name in enumerate(op.loops) if not _moves(moved, op, i, context))


def _moves(moved: Any, op: Operation, loop: int, context: Any) -> bool:
    """Whether a dependence goes from one iteration of a loop to another."""
    axes = ", ".join(f"x{i}" for i in range(len(op.loops)))
    still = isl().UnionSet.read_from_str(context, f"{{ S[{axes}] : x{loop} = 0 }}")
    return not moved.is_subset(still)


@lru_cache(maxsize=8192)
def _allowed(op: Operation, order: tuple[str, ...], reassociate: bool) -> bool:
    if sorted(order) != sorted(op.loops):
        return False
    if reassociate or not op.sums:
        return True
    if isl() is None:
        return [one for one in order if one in op.sums] == [one for one in op.loops if one in op.sums]
    found, context = _dependences(op)
    turned = f"{{ S[{', '.join(op.loops)}] -> [{', '.join(order)}] }}"
    schedule = isl().UnionMap.read_from_str(context, turned)
    moved = found.apply_domain(schedule).apply_range(schedule).deltas()
    return bool(moved.is_subset(isl().UnionSet.read_from_str(context, _later(len(order)))))


def _later(axes: int) -> str:
    """The set of steps that go forward: the first number that is not 0 is above it."""
    names = [f"x{i}" for i in range(axes)]
    ways = [" and ".join([*(f"{n} = 0" for n in names[:i]), f"{names[i]} > 0"]) for i in range(axes)]
    return f"{{ [{', '.join(names)}] : {' or '.join(f'({way})' for way in ways)} }}"


@lru_cache(maxsize=1024)
def _shared(first: Operation, then: Operation) -> int:
    most = min(len(first.loops), len(then.loops))
    depth = 0
    while depth < most and _together(first, then, depth + 1):
        depth += 1
    return depth


def _together(first: Operation, then: Operation, depth: int) -> bool:
    """Whether the two may share their outermost `depth` loops, the first before the second in each iteration."""
    reads = [where for name, where in then.reads if name == first.writes[0]]
    if isl() is None:
        return all(_plain(first, then, where, depth) for where in reads)
    return all(_proven(first, then, where, depth) for where in reads)


def _plain(first: Operation, then: Operation, where: str, depth: int) -> bool:
    """The same from the maps alone: both run along the same plain indices, and neither sums over them."""
    made, read = first.writes[1].split(","), where.split(",")
    return all(
        d < len(made) and d < len(read) and made[d] == first.loops[d] and read[d] == then.loops[d]
        and first.loops[d] not in first.sums and then.loops[d] not in then.sums
        for d in range(depth)
    )  # fmt: skip


def _proven(first: Operation, then: Operation, where: str, depth: int) -> bool:
    library = isl()
    context = library.Context()

    def accesses(name: str, op: Operation, place: str) -> Any:
        return library.Map.read_from_str(context, f"{{ {reaches(name, op, place)} }}")

    def outermost(name: str, op: Operation) -> Any:
        inside, outside = ", ".join(op.loops), ", ".join(op.loops[:depth])
        return library.Map.read_from_str(context, f"{{ {name}[{inside}] -> [{outside}] }}")

    needs = accesses("P", first, first.writes[1]).apply_range(accesses("C", then, where).reverse())
    moved = needs.apply_domain(outermost("P", first)).apply_range(outermost("C", then)).deltas()
    # A loop that only one of them sums over would have to end before the other may begin.
    names = [f"x{i}" for i in range(depth)]
    still = f"{{ [{', '.join(names)}] : {' and '.join(f'{n} = 0' for n in names)} }}"
    return bool(moved.is_subset(library.Set.read_from_str(context, still)))
