"""Legality of loop orders, parallel loops and fusions, proven from the dependences of a payload."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import permutations
from typing import Any

from tunewright.mlir.payload import LinalgOp, Payload

_UNKNOWN = 1 << 10
"""Stands for a size known only at a call; large enough that no dependence is missed."""


@cache
def import_isl() -> Any:
    """Returns islpy, or None if it is not installed; then only what linalg declares is used."""
    try:
        import islpy  # noqa: PLC0415 - an optional package
    except ImportError:
        return None
    return islpy


def isl_domain(name: str, op: LinalgOp, index: str | None) -> str:
    """Returns the iteration domain of an operation as isl text; with `index`, the map to the elements it accesses."""
    bounds = " and ".join(f"0 <= {n} < {s or _UNKNOWN}" for n, s in zip(op.loops, op.sizes, strict=True))
    return f"{name}[{', '.join(op.loops)}]{f' -> R[{index}]' if index is not None else ''} : {bounds}"


@dataclass(frozen=True)
class Legality:
    """Legal transformations of one payload. `reassociate` allows reductions in any order."""

    payload: Payload
    reassociate: bool = False

    def parallel_loops(self, name: str) -> frozenset[str]:
        """Returns the loops of an operation whose iterations may run in parallel."""
        return _parallel_loops(self.payload.find(name), self.reassociate)

    def loop_orders(self, name: str) -> list[tuple[str, ...]]:
        """Returns the legal loop orders of an operation, its own first."""
        op = self.payload.find(name)
        return [order for order in permutations(op.loops) if self.is_legal_order(name, order)]

    def is_legal_order(self, name: str, order: tuple[str, ...]) -> bool:
        """Returns whether the loops of an operation may have that order."""
        return _is_legal_order(self.payload.find(name), tuple(order), self.reassociate)

    def shared_loops(self, producer: str, consumer: str) -> int:
        """Returns how many outermost loops two operations may share without reading a value before it is written."""
        first, then = self.payload.find(producer), self.payload.find(consumer)
        return _count_shared_loops(first, then)

    def fusion_depth(self) -> int:
        """Returns how many outermost loops all operations may share with the last one; 0 if they cannot be fused."""
        ops = self.payload.operations
        depths = [
            self.shared_loops(first.name, then.name)
            for i, then in enumerate(ops)
            for first in ops[:i]
            if any(read == first.name for read, _ in then.reads)
        ]
        return min([len(set(ops[-1].loops) - ops[-1].reductions), *depths])


@lru_cache(maxsize=256)
def _flow_dependences(op: LinalgOp) -> Any:
    """Returns the flow dependences between iterations as an isl map."""
    library = import_isl()
    context = library.Context()
    accesses = f"{{ {isl_domain('S', op, op.writes[1])} }}"
    if not op.reductions:  # each element is written once and read only by its own iteration
        return library.UnionMap.read_from_str(context, "{ }"), context
    access = library.UnionAccessInfo.from_sink(library.UnionMap.read_from_str(context, accesses))
    access = access.set_must_source(library.UnionMap.read_from_str(context, accesses))
    order = library.UnionMap.read_from_str(context, f"{{ S[{', '.join(op.loops)}] -> [{', '.join(op.loops)}] }}")
    flow = access.set_schedule_map(order).compute_flow()
    return flow.get_must_dependence(), context


@lru_cache(maxsize=1024)
def _parallel_loops(op: LinalgOp, reassociate: bool) -> frozenset[str]:
    if reassociate:
        return frozenset(op.loops)
    if import_isl() is None or not op.reductions:
        return frozenset(op.loops) - op.reductions
    dependences, context = _flow_dependences(op)
    distances = dependences.deltas()
    return frozenset(name for i, name in enumerate(op.loops) if not _carries_dependence(distances, op, i, context))


def _carries_dependence(distances: Any, op: LinalgOp, loop: int, context: Any) -> bool:
    """Returns whether a dependence goes from one iteration of a loop to another."""
    axes = ", ".join(f"x{i}" for i in range(len(op.loops)))
    zero = import_isl().UnionSet.read_from_str(context, f"{{ S[{axes}] : x{loop} = 0 }}")
    return not distances.is_subset(zero)


@lru_cache(maxsize=8192)
def _is_legal_order(op: LinalgOp, order: tuple[str, ...], reassociate: bool) -> bool:
    if sorted(order) != sorted(op.loops):
        return False
    if reassociate or not op.reductions:
        return True
    if import_isl() is None:
        return [loop for loop in order if loop in op.reductions] == [loop for loop in op.loops if loop in op.reductions]
    dependences, context = _flow_dependences(op)
    interchange = f"{{ S[{', '.join(op.loops)}] -> [{', '.join(order)}] }}"
    schedule = import_isl().UnionMap.read_from_str(context, interchange)
    distances = dependences.apply_domain(schedule).apply_range(schedule).deltas()
    return bool(distances.is_subset(import_isl().UnionSet.read_from_str(context, _forward_set(len(order)))))


def _forward_set(axes: int) -> str:
    """Returns the set of lexicographically positive distances as isl text."""
    names = [f"x{i}" for i in range(axes)]
    cases = [" and ".join([*(f"{n} = 0" for n in names[:i]), f"{names[i]} > 0"]) for i in range(axes)]
    return f"{{ [{', '.join(names)}] : {' or '.join(f'({case})' for case in cases)} }}"


@lru_cache(maxsize=1024)
def _count_shared_loops(first: LinalgOp, then: LinalgOp) -> int:
    max_depth = min(len(first.loops), len(then.loops))
    depth = 0
    while depth < max_depth and _can_share(first, then, depth + 1):
        depth += 1
    return depth


def _can_share(first: LinalgOp, then: LinalgOp, depth: int) -> bool:
    """Returns whether two operations may share their outermost `depth` loops, the first one running first."""
    reads = [where for name, where in then.reads if name == first.writes[0]]
    if import_isl() is None:
        return all(_can_share_by_maps(first, then, where, depth) for where in reads)
    return all(_can_share_by_isl(first, then, where, depth) for where in reads)


def _can_share_by_maps(first: LinalgOp, then: LinalgOp, where: str, depth: int) -> bool:
    """The same from the maps alone: both have the same plain indices, and neither reduces over them."""
    write, read = first.writes[1].split(","), where.split(",")
    return all(
        d < len(write) and d < len(read) and write[d] == first.loops[d] and read[d] == then.loops[d]
        and first.loops[d] not in first.reductions and then.loops[d] not in then.reductions
        for d in range(depth)
    )  # fmt: skip


def _can_share_by_isl(first: LinalgOp, then: LinalgOp, where: str, depth: int) -> bool:
    library = import_isl()
    context = library.Context()

    def access_map(name: str, op: LinalgOp, index: str) -> Any:
        return library.Map.read_from_str(context, f"{{ {isl_domain(name, op, index)} }}")

    def outermost(name: str, op: LinalgOp) -> Any:
        inside, outside = ", ".join(op.loops), ", ".join(op.loops[:depth])
        return library.Map.read_from_str(context, f"{{ {name}[{inside}] -> [{outside}] }}")

    dependences = access_map("P", first, first.writes[1]).apply_range(access_map("C", then, where).reverse())
    distances = dependences.apply_domain(outermost("P", first)).apply_range(outermost("C", then)).deltas()
    # A reduction loop of only one operation would have to end before the other may start.
    names = [f"x{i}" for i in range(depth)]
    zero = f"{{ [{', '.join(names)}] : {' and '.join(f'{n} = 0' for n in names)} }}"
    return bool(distances.is_subset(library.Set.read_from_str(context, zero)))
