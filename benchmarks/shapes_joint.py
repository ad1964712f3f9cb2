"""Figures of `benchmarks/shapes.py` about all shapes together: a joint model, a cover, a rule, and where trials go.

- `untuned`: eight shapes are tuned, those that `shapes_to_tune` asks for; the others get what the model predicts.
  `started`: the first of the eight is drawn at random, the others are asked for; `random`: all are drawn. Means over
  draws, of the mean and of the worst regret of a draw, with the least and the greatest.
- `trials`: until the mean regret over all shapes is 5 %; see `shapes_trials.py`.
- `cover`: the fewest configs of which each shape has one within 5 % of its best; `rule`: a tree that chooses between
  them. `unseen`: of each shape, with the rule of the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from shapes_table import WITHIN, Floats, Table, shape_table
from shapes_trials import WAYS, trials

from tunewright.shapes.cover import Cover, cover
from tunewright.shapes.joint_model import JointModel
from tunewright.shapes.rules import fit_rule
from tunewright.shapes.selection import shapes_to_tune
from tunewright.shapes.table import ShapeTable
from tunewright.spaces.config import Config
from tunewright.spaces.shape_rule import ShapeRule

TUNED = 8


def mean_and_worst(name: str, found: Floats) -> dict[str, float]:
    return {f"{name}_mean": round(float(found.mean()), 4), f"{name}_worst": round(float(found.max()), 4)}


def untuned_regret(table: Table, tuned: list[int]) -> Floats:
    """Regret of all other shapes with what the model predicts."""
    known = shape_table(table).only(tuned)
    model = JointModel(known)
    others = [i for i in range(len(table.shapes)) if i not in tuned]
    return np.array([table.regret(i, model.best(known.shapes[i])) for i in others])


def untuned(table: Table, draws: list[list[int]]) -> dict[str, Any]:
    """Shapes that are asked for; beside them, shapes of which one or all are drawn at random."""
    known = shape_table(table)
    order = shapes_to_tune(known.only([]), TUNED)
    started = [[first, *shapes_to_tune(known.only([first]), TUNED - 1)] for first, *_ in draws]
    return {
        **mean_and_worst("untuned", untuned_regret(table, order)),
        **over_draws("untuned_started", [untuned_regret(table, tuned) for tuned in started]),
        **over_draws("untuned_random", [untuned_regret(table, tuned) for tuned in draws]),
        "tuned_shapes": [list(table.shapes[i]) for i in order],
    }


def over_draws(name: str, found: list[Floats]) -> dict[str, Any]:
    """The mean over draws of the mean regret and of the worst, each with the least and the greatest."""
    said: dict[str, Any] = {}
    for part, values in (("mean", [x.mean() for x in found]), ("worst", [x.max() for x in found])):
        said[f"{name}_{part}"] = round(float(np.mean(values)), 4)
        said[f"{name}_{part}_range"] = [round(float(min(values)), 4), round(float(max(values)), 4)]
    return said


def judged(table: Table, serves: list[int]) -> Floats:
    return np.array([table.regret(i, config) for i, config in enumerate(serves)])


def leaf_config(rule: ShapeRule, known: ShapeTable, shape: int) -> int:
    return known.configs.index(Config(rule.leaf(known.named(shape)).config))


def unseen_regret(table: Table, known: ShapeTable) -> Floats:
    """Regret of each shape with a rule that was fitted on all others, whether it may serve it or not."""
    everything, found = range(len(known.shapes)), []
    for shape in everything:
        rule = fit_rule(cover(known.only([i for i in everything if i != shape]), WITHIN), "gemm")
        found.append(table.regret(shape, leaf_config(rule, known, shape)))
    return np.array(found)


def covered(table: Table) -> dict[str, Any]:
    """The cover and the rule, judged by the other passes."""
    known = shape_table(table)
    found: Cover = cover(known, WITHIN)
    rule = fit_rule(found, "gemm")
    served = [rule.config(known.named(i)) for i in range(len(known.shapes))]
    by_cover = judged(table, list(found.serves))
    by_rule = judged(table, [leaf_config(rule, known, i) for i in range(len(known.shapes))])
    return {
        "cover_configs": len(found.configs),
        "cover_is_smallest": found.is_smallest,
        **mean_and_worst("cover", by_cover),
        "cover_curve": {f"within_{share:.0%}": len(cover(known, share).configs) for share in (0.02, 0.05, 0.1, 0.2)},
        **mean_and_worst("rule", by_rule),
        "rule_extra": round(float(by_rule.mean() - by_cover.mean()), 4),
        "rule_leaves": len(list(rule.leaves())),
        "rule_depth": rule.depth,
        "rule_unserved": sum(config is None for config in served),
        **mean_and_worst("rule_unseen", unseen_regret(table, known)),
    }


def joint_figures(table: Table, draws: list[list[int]], seeds: int) -> dict[str, Any]:
    """All of them."""
    return {**untuned(table, draws), **trials(table, seeds), **covered(table)}


def joint_lines(said: dict[str, Any]) -> list[str]:
    """For people."""
    ranges = {name: said[f"trials_{name}_range"] for name in WAYS}
    return [
        f"joint model, {TUNED} tuned: untuned {said['untuned_mean']:.1%}, worst {said['untuned_worst']:.1%}; "
        f"the first drawn: {said['untuned_started_mean']:.1%}, worst {said['untuned_started_worst']:.1%}; "
        f"tuned at random: {said['untuned_random_mean']:.1%}, worst {said['untuned_random_worst']:.1%}",
        f"trials until the mean regret is {WITHIN:.0%}, medians: "
        + ", ".join(f"{name} {said[f'trials_{name}']:g} ({low} to {high})" for name, (low, high) in ranges.items()),
        f"cover within {WITHIN:.0%}: {said['cover_configs']} configs, {said['cover_mean']:.1%} by the other passes",
        f"rule of {said['rule_leaves']} leaves: {said['rule_mean']:.1%}; on a shape it was not fitted on: "
        f"{said['rule_unseen_mean']:.1%}, worst {said['rule_unseen_worst']:.1%}",
    ]
