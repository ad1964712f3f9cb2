"""Checks a rule on shapes that it was not fitted on: its config is raced against the others of the cover."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tunewright.errors import NoDecision
from tunewright.kernel.tuned import Tuned
from tunewright.measure.race import Race, RaceOptions
from tunewright.shapes.table import ShapeTable
from tunewright.spaces.config import Config
from tunewright.spaces.shape_rule import ShapeRule, bucket_of

CHECK_RACE = RaceOptions(rounds=60, seconds=4.0)
TRIES = 200
"""Shapes that are drawn until enough are found that the rule serves and that were not tuned."""


@dataclass(frozen=True)
class CheckedShape:
    """A shape that was raced: by which share the config of the rule is slower than the fastest, or why it failed."""

    sizes: Mapping[str, int]
    config: Config
    regret: float
    problem: str = ""


def unseen_shapes(rule: ShapeRule, table: ShapeTable, count: int, seed: int = 0) -> list[dict[str, int]]:
    """Returns shapes that the rule serves and the table does not have, drawn from the buckets of the table."""
    rng, known, found = np.random.default_rng(seed), set(table.shapes), dict[tuple[int, ...], None]()
    tops = [bucket_of(shape) for shape in table.shapes]
    for _ in range(TRIES):
        bucket = tops[int(rng.integers(len(tops)))]
        shape = tuple(int(rng.integers(top // 2 + 1, top + 1)) for top in bucket)
        sizes = dict(zip(table.names, shape, strict=True))
        if shape not in known and rule.config(sizes) is not None:
            found[shape] = None
        if len(found) == count:
            break
    return [dict(zip(table.names, shape, strict=True)) for shape in found]


def race_rule(
    kernel: Tuned, rule: ShapeRule, sizes: Mapping[str, int], options: RaceOptions = CHECK_RACE
) -> CheckedShape:
    """Races the config of the rule on a shape against the other configs of the rule and the default."""
    config = rule.config(sizes)
    if config is None:
        raise NoDecision(f"the rule does not serve {dict(sizes)}; choose a shape of a bucket that was tuned")
    others = dict.fromkeys([*(Config(leaf.config) for leaf in rule.leaves()), kernel.default])
    configs = [config, *(other for other in others if other != config)]
    args: list[Any] = kernel.example(sizes)
    attempt: Any = kernel.attempt(kernel.cases_like(args))
    race: Race | None = attempt.race(configs, options, protected=(0,))
    failed = dict(race.failed) if race is not None else {}
    if race is None or 0 in failed:
        reason = "the race did not end" if race is None else failed[0].reason
        return CheckedShape(sizes, config, float("inf"), reason)
    slower = 0.0 if race.leader == 0 else max(0.0, race.ratio(0, race.leader)[0] - 1)
    return CheckedShape(sizes, config, slower)
