"""What a rule costs when a kernel is launched in frozen mode, beside a decision for the very shape.

- `rule_launch_extra_us`: a launch of a shape that a rule serves, beyond one that is decided. Both are kept after the
  first launch, so this is what every later launch costs.
- `rule_first_us`, `exact_first_us`: the look-up that the first launch of each shape makes, in the session.
- `rule_walk_us`: the tree itself, with its check of the bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from time import perf_counter
from typing import Any

import numpy as np
from figures import Paired, Series

import tunewright as tw
from tunewright.model.decision import Decision, Evidence, Tier
from tunewright.shapes.serving import rule_key
from tunewright.spaces.shape_rule import RuleLeaf, RuleSplit, ShapeRule
from tunewright.stores.memory import MemoryStore

LAUNCHES, LOOKUPS = 20_000, 400
SPACE = tw.Space(tw.Knob("step", [1, 2]))


@tw.tune(SPACE)
def kernel(a: tw.In("M", "N"), *, step: int = 1) -> None: ...


def rule() -> ShapeRule:
    """Four comparisons deep, with every bucket up to 4096 verified."""
    sizes = [2**i for i in range(13)]
    verified = tuple((m, n) for m in sizes for n in sizes)
    nodes: list[Any] = [RuleLeaf({"step": 1 + i % 2}, verified) for i in range(16)]
    for depth, size in enumerate(("N", "M", "N", "M")):
        nodes = [RuleSplit(size, 64 << depth, low, high) for low, high in zip(nodes[::2], nodes[1::2], strict=True)]
    return ShapeRule("kernel", ("M", "N"), nodes[0])


def per_call(call: Callable[[Any], Any], args: list[Any], count: int) -> float:
    """Microseconds of a call, over arguments in turn."""
    turns = cycle(args)
    began = perf_counter()
    for _ in range(count):
        call(next(turns))
    return 1e6 * (perf_counter() - began) / count


def lookup_line(said: dict[str, Any]) -> str:
    """For people."""
    return (
        f"a launch that a rule serves takes {said['rule_launch_extra_us']:.3f} us more than one that is decided; "
        f"the first look-up {said['rule_first_us']:.0f} us, {said['exact_first_us']:.0f} us if it is decided"
    )


def lookup_figures(rounds: int) -> dict[str, Any]:
    """All of them; `rounds` pairs of each."""
    store = MemoryStore()
    frozen = tw.Session(mode="frozen", store=store)
    kernel.using(frozen)
    decided, served = np.empty((100, 50), np.float32), np.empty((101, 50), np.float32)
    key, tree = kernel.problem([decided]).key, rule()
    store.put(Decision(key, tw.Config(step=1)))
    store.put(Decision(rule_key(key), tw.Config(step=1), Evidence(1.0, 1.0, 1.0, rule=tree)))
    assert [kernel.decide(args).tier for args in (decided, served)] == [Tier.EXACT, Tier.RULE]
    launches = Paired.of(
        (per_call(kernel, [served], LAUNCHES), per_call(kernel, [decided], LAUNCHES)) for _ in range(rounds)
    )
    shapes = [np.empty((m, 50), np.float32) for m in range(200, 200 + LOOKUPS)]
    problems = [kernel.problem([one]) for one in shapes]
    exact = kernel.problem([decided])
    walk = Series(per_call(tree.config, [{"M": 300, "N": 50}], LOOKUPS) for _ in range(rounds))
    firsts = Paired.of(
        (
            per_call(frozen.lookup_or_policy, problems, LOOKUPS),
            per_call(frozen.lookup_or_policy, [exact], LOOKUPS),
        )
        for _ in range(rounds)
    )
    assert next(tree.leaves()).serves((300, 50))
    return {
        "rule_launch_extra_us": round(launches.extra.median, 3),
        "exact_launch_us": round(launches.cheaper.median, 3),
        "rule_first_us": round(firsts.dearer.median, 2),
        "exact_first_us": round(firsts.cheaper.median, 2),
        "rule_walk_us": round(walk.median, 2),
    }
