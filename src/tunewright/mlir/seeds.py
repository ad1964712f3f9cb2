"""Seed configs of a plan: by what isl's polyhedral scheduler would fuse, and from what other payloads found."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np

from tunewright.mlir.legality import import_isl, isl_domain
from tunewright.mlir.payload import Payload
from tunewright.mlir.plan import SchedulePlan
from tunewright.mlir.processor import vector_lanes
from tunewright.mlir.structure_model import ProductShape, StructureModel, Table, shipped_tables
from tunewright.spaces.config import VARIANT, Config, Value

SAMPLES = 400
"""Configs sampled per structure to find the one with the best register use."""


@dataclass(frozen=True)
class FusionHint:
    """Result of isl's scheduler: whether one band has all operations, its number of loops, and which are parallel."""

    fused: bool
    loops: int
    parallel: tuple[bool, ...]


def suggest_fusion(payload: Payload) -> FusionHint | None:
    """Returns the result of isl's scheduler; None without islpy or without known operations."""
    library = import_isl()
    if library is None or not payload.operations:
        return None
    context = library.Context()
    domains, dependences = [], []
    for op in payload.operations:
        domains.append(isl_domain(op.name, op, None))
        if op.reductions:
            dependences.append((op, op, op.writes[1]))
        for name, where in op.reads:
            producers = [other for other in payload.operations if other.name == name and other is not op]
            dependences += [(producer, op, where) for producer in producers]
    domain = library.UnionSet.read_from_str(context, f"{{ {'; '.join(domains)} }}")
    validity = library.UnionMap.read_from_str(context, "{ }")
    for first, then, where in dependences:
        writes = library.UnionMap.read_from_str(context, f"{{ {isl_domain(first.name, first, first.writes[1])} }}")
        reads = library.UnionMap.read_from_str(context, f"{{ {isl_domain(then.name, then, where)} }}")
        pairs = writes.apply_range(reads.reverse())
        if first is then:  # a reduction depends only on its own earlier terms
            loops = ", ".join(first.loops)
            own = library.UnionMap.read_from_str(context, f"{{ {first.name}[{loops}] -> [{loops}] }}")
            pairs = pairs.intersect(own.lex_lt_union_map(own))
        validity = validity.union(pairs)
    constraints = library.ScheduleConstraints.on_domain(domain).set_validity(validity)
    constraints = constraints.set_proximity(validity).set_coincidence(validity)
    node = constraints.compute_schedule().get_root().child(0)
    if node.get_type() != library.schedule_node_type.band:
        return FusionHint(False, 0, ())
    count = node.band_n_member()
    return FusionHint(True, count, tuple(bool(node.band_member_get_coincident(i)) for i in range(count)))


def seed_configs(plan: SchedulePlan) -> list[Config]:
    """Returns the configs to try first: of the structures predicted to be best, or one of each without a prediction.

    If all that are predicted change the last digits, which has to be allowed, one of each of the others follows.
    """
    predicted, exact = predict_configs(plan), plan.space.exact(())
    if any(config in exact for config in predicted):
        return predicted
    return [*predicted, *(config for config in register_configs(plan) if config in exact or not predicted)]


def register_configs(plan: SchedulePlan) -> list[Config]:
    """Returns the config with the best register use of each structure; fused ones first if isl fuses all operations."""
    rng = np.random.default_rng(0)
    best: dict[str, Config] = {}
    for config in plan.space.sample(rng, SAMPLES * len(plan.space.variants)):
        name = str(config[VARIANT])
        if name not in best or register_use(config) > register_use(best[name]):
            best[name] = config
    unfused = {name for name, parts in plan.structures.items() if not any(part.fuses for part in parts)}
    hint = suggest_fusion(plan.payload) if unfused else None
    return sorted(best.values(), key=lambda config: bool(hint and hint.fused) and str(config[VARIANT]) in unfused)


def adapt_configs(plan: SchedulePlan, found: Iterable[Mapping[str, Value]]) -> list[Config]:
    """Returns what was found for other payloads as seeds of this plan: the same structure, and the nearest numbers.

    Numbers are near by their ratios. A structure that this plan does not have gives no seed.
    """
    return nearest(list(plan.space), found)


def nearest(configs: Sequence[Config], found: Iterable[Mapping[str, Value]]) -> list[Config]:
    """Returns the nearest of these configs to each of those found, if any has the same structure."""
    seeds = []
    for config in found:
        same = [one for one in configs if one[VARIANT] == config.get(VARIANT)]
        if same:
            seeds.append(min(same, key=lambda one: _distance(one, config)))
    return list(dict.fromkeys(seeds))


def predict_configs(
    plan: SchedulePlan, found: Iterable[Mapping[str, Value]] = (), *, tables: Collection[Table] | None = None
) -> list[Config]:
    """Returns the configs to try first: what was found for other payloads, then the structures predicted to be best.

    A structure that suits one size may not suit another: the prediction is made from `tables` of measured products, by
    default those of the package. A payload without a single product of known sizes has no prediction, and neither has a
    structure of which no times are known.
    """
    first, shape = adapt_configs(plan, found), ProductShape.of(plan.payload)
    if shape is None:
        return first
    rng = np.random.default_rng(0)
    model = StructureModel(shipped_tables() if tables is None else tables)
    drawn = dict.fromkeys(plan.space.sample(rng, SAMPLES * len(plan.space.variants)))
    configs = [config for config in drawn if config[VARIANT] in model.structures]
    predicted = model.first(shape, configs) if configs else []
    return list(dict.fromkeys([*first, *predicted]))


def _distance(config: Config, other: Mapping[str, Value]) -> float:
    """Returns how many doublings two configs are apart, over all knobs that both have."""
    return sum(_value_distance(config[name], other[name]) for name in config.keys() & other.keys())


def _value_distance(one: Value, two: Value) -> float:
    if isinstance(one, int | float) and isinstance(two, int | float) and one > 0 and two > 0:
        return abs(log2(one / two))
    return float(one != two)


def register_use(config: Config) -> tuple[float, ...]:
    """Returns a sort key: multiplications per load, then long vectors, then a medium reduction tile."""
    knobs: dict[str, Any] = dict(config)
    rows, columns = knobs.get("mr", 1), knobs.get("nr", vector_lanes()) / vector_lanes()
    return (
        rows * columns / (rows + columns),
        knobs.get("tj", 0),
        -abs(knobs.get("kr", 8) - 8),
        -abs(knobs.get("pk", 16) - 16),
    )
