"""Suggestions: what a polyhedral scheduler would fuse and run at once, and configs worth trying first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tunewright.backends.mlir.legality import isl, reaches
from tunewright.backends.mlir.plan import Plan
from tunewright.backends.mlir.processor import lanes
from tunewright.backends.mlir.writing import Payload
from tunewright.spaces.config import VARIANT, Config

DRAWN = 400
"""Configs of a structure looked at for the one that keeps registers busiest."""


@dataclass(frozen=True)
class Suggestion:
    """What isl's scheduler makes of a payload: whether one band of loops holds all operations, how many loops that
    has, and which of them carry no dependence."""

    fused: bool
    loops: int
    parallel: tuple[bool, ...]


def suggestion(payload: Payload) -> Suggestion | None:
    """What the scheduler suggests; None without the library, or without known operations."""
    library = isl()
    if library is None or not payload.operations:
        return None
    context = library.Context()
    domains, needs = [], []
    for op in payload.operations:
        domains.append(reaches(op.name, op, None))
        if op.sums:
            needs.append((op, op, op.writes[1]))
        for name, where in op.reads:
            made = [one for one in payload.operations if one.name == name and one is not op]
            needs += [(one, op, where) for one in made]
    domain = library.UnionSet.read_from_str(context, f"{{ {'; '.join(domains)} }}")
    validity = library.UnionMap.read_from_str(context, "{ }")
    for first, then, where in needs:
        writes = library.UnionMap.read_from_str(context, f"{{ {reaches(first.name, first, first.writes[1])} }}")
        reads = library.UnionMap.read_from_str(context, f"{{ {reaches(then.name, then, where)} }}")
        pairs = writes.apply_range(reads.reverse())
        if first is then:  # a sum needs its own earlier terms alone
            loops = ", ".join(first.loops)
            own = library.UnionMap.read_from_str(context, f"{{ {first.name}[{loops}] -> [{loops}] }}")
            pairs = pairs.intersect(own.lex_lt_union_map(own))
        validity = validity.union(pairs)
    constraints = library.ScheduleConstraints.on_domain(domain).set_validity(validity)
    constraints = constraints.set_proximity(validity).set_coincidence(validity)
    node = constraints.compute_schedule().get_root().child(0)
    if node.get_type() != library.schedule_node_type.band:
        return Suggestion(False, 0, ())
    count = node.band_n_member()
    return Suggestion(True, count, tuple(bool(node.band_member_get_coincident(i)) for i in range(count)))


def seeds(plan: Plan) -> list[Config]:
    """A config of each structure, the one that keeps vector registers busiest; fused structures first if one band
    of loops can hold them."""
    rng = np.random.default_rng(0)
    found: dict[str, Config] = {}
    for config in plan.space.sample(rng, DRAWN * len(plan.space.variants)):
        name = str(config[VARIANT])
        if name not in found or _busy(config) > _busy(found[name]):
            found[name] = config
    said = suggestion(plan.payload)
    apart = {name for name, parts in plan.structures.items() if not any(part.fuses for part in parts)}
    return sorted(found.values(), key=lambda config: bool(said and said.fused) and str(config[VARIANT]) in apart)


def _busy(config: Config) -> tuple[float, ...]:
    """Multiplications for each load, then long vectors, then a middling number of terms at a time."""
    knobs: dict[str, Any] = dict(config)
    rows, columns = knobs.get("mr", 1), knobs.get("nr", lanes()) / lanes()
    return (
        rows * columns / (rows + columns),
        knobs.get("tj", 0),
        -abs(knobs.get("kr", 8) - 8),
        -abs(knobs.get("pk", 16) - 16),
    )
