"""Figures of `benchmarks/shapes.py` about all shapes together: a joint model, a cover, a rule, and where trials go.

- `untuned`: eight shapes are tuned, those that `shapes_to_tune` asks for; the others get what the model predicts.
  `started`: the first of the eight is drawn at random, the others are asked for; `random`: all are drawn. Means over
  draws, of the mean and of the worst regret of a draw, with the least and the greatest.
- `trials`: until the mean regret over all shapes is 5 %. `joint`: as `tunewright tune --shapes` does it; a shape that
  was not tried yet has the first config of the space. `alone`: one shape after the other, in random order, with as many
  trials each: the best configs found so far for its nearest shapes, then what a model of its own trials proposes.
  `foreseen`: all shapes at once, their seeds the best of all configs on their nearest shapes, as if these had been
  tuned completely and nothing were charged for it; nobody can do that, it is what seeds could give at most.
- `cover`: the fewest configs of which each shape has one within 5 % of its best; `rule`: a tree that chooses between
  them. `unseen`: of each shape, with the rule of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tunewright.shapes.cover import Cover, cover
from tunewright.shapes.features import Features
from tunewright.shapes.joint_model import JointModel
from tunewright.shapes.planning import TrialPlan
from tunewright.shapes.rules import fit_rule
from tunewright.shapes.selection import expected_gains, shapes_to_tune
from tunewright.shapes.table import ShapeTable
from tunewright.spaces.config import Config
from tunewright.spaces.shape_rule import ShapeRule

if TYPE_CHECKING:
    from shapes_table import Table

TUNED = 8
WITHIN = 0.05
NEIGHBOURS = 4

Floats = NDArray[np.float64]


def shape_table(table: Table, tried: NDArray[np.bool_] | None = None) -> ShapeTable:
    """What is chosen by, all of it or only what was tried."""
    seconds = table.chosen_by if tried is None else np.where(tried, table.chosen_by, np.nan)
    weights = np.ones(len(table.shapes))
    return ShapeTable(table.names, tuple(table.shapes), tuple(table.configs), seconds, weights)


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


def reached(table: Table, tried: NDArray[np.bool_]) -> float:
    """The mean regret with the best config of each shape that was tried."""
    best = np.where(tried, table.chosen_by, np.inf).argmin(axis=1)
    return float(np.mean([table.regret(i, int(config)) for i, config in enumerate(best)]))


def joint_trials(table: Table, seed: int) -> int:
    """Trials until the mean regret is near, if every trial informs all shapes."""
    tried = np.zeros(table.chosen_by.shape, dtype=bool)
    plan = TrialPlan(shape_table(table, tried), seed=seed)
    while reached(table, tried) > WITHIN and (wanted := plan.next()):
        for place in wanted:
            tried[place] = True
            plan.seconds[place] = table.chosen_by[place]
    return int(tried.sum()) if reached(table, tried) <= WITHIN else tried.size


def alone_trials(table: Table, seed: int) -> int:
    """Trials until the mean regret is near, if shapes are tuned one by one, from the seeds of those before."""
    features, most = Features(len(table.names), table.configs), len(table.configs)
    for count in range(1, most + 1):
        tried = one_by_one(table, count, features, np.random.default_rng(seed))
        if reached(table, tried) <= WITHIN:
            return int(tried.sum())
    return most * len(table.shapes)


def one_by_one(table: Table, count: int, features: Features, rng: np.random.Generator) -> NDArray[np.bool_]:
    """What is tried if every shape gets as many trials, one shape after the other in random order."""
    tried = np.zeros(table.chosen_by.shape, dtype=bool)
    done: list[int] = []
    for shape in rng.permutation(len(table.shapes)).tolist():
        best = np.where(tried, table.chosen_by, np.inf).argmin(axis=1)
        seeds = [int(best[j]) for j in table.near(shape, done, NEIGHBOURS)]
        for config in islice(own_search(table, shape, seeds, features, rng), count):
            tried[shape, config] = True
        done.append(shape)
    return tried


def foreseen_trials(table: Table, seed: int) -> int:
    """Trials until the mean regret is near, if the best configs of all other shapes are known, free of charge."""
    rng, features = np.random.default_rng(seed), Features(len(table.names), table.configs)
    best, searches = table.chosen_by.argmin(axis=1), []
    for shape in range(len(table.shapes)):
        near = table.near(shape, [j for j in range(len(table.shapes)) if j != shape], NEIGHBOURS)
        searches.append(own_search(table, shape, [int(best[j]) for j in near], features, rng))
    tried = np.zeros(table.chosen_by.shape, dtype=bool)
    while not tried.any() or (reached(table, tried) > WITHIN and not tried.all()):
        for shape, search in enumerate(searches):
            tried[shape, next(search)] = True
    return int(tried.sum())


def own_search(
    table: Table, shape: int, seeds: Sequence[int], features: Features, rng: np.random.Generator
) -> Iterator[int]:
    """The configs that a shape tries: seeds, one or two at random, then those of which most is expected."""
    order = list(dict.fromkeys(seeds))
    others = [config for config in range(len(table.configs)) if config not in order]
    order += rng.choice(others, max(1, 2 - len(order)), replace=False).tolist()
    yield from order
    while len(order) < len(table.configs):
        tried = np.zeros(table.chosen_by.shape, dtype=bool)
        tried[shape, order] = True
        known = shape_table(table, tried)
        order.append(int(expected_gains(known, JointModel(known, features), shape).argmax()))
        yield order[-1]


def trials(table: Table, seeds: int) -> dict[str, Any]:
    """Medians over seeds."""
    joint = [joint_trials(table, seed) for seed in range(seeds)]
    alone = [alone_trials(table, seed) for seed in range(seeds)]
    foreseen = [foreseen_trials(table, seed) for seed in range(seeds)]
    return {
        "trials_joint": median(joint),
        "trials_alone": median(alone),
        "trials_foreseen": median(foreseen),
        "trials_ratio": round(median(joint) / median(alone), 4),
        "trials_ratio_foreseen": round(median(joint) / median(foreseen), 4),
    }


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
    return [
        f"joint model, {TUNED} tuned: untuned {said['untuned_mean']:.1%}, worst {said['untuned_worst']:.1%}; "
        f"the first drawn: {said['untuned_started_mean']:.1%}, worst {said['untuned_started_worst']:.1%}; "
        f"tuned at random: {said['untuned_random_mean']:.1%}, worst {said['untuned_random_worst']:.1%}",
        f"trials until the mean regret is {WITHIN:.0%}: {said['trials_joint']:g} together, "
        f"{said['trials_alone']:g} one by one, {said['trials_foreseen']:g} if the best of the others were known",
        f"cover within {WITHIN:.0%}: {said['cover_configs']} configs, {said['cover_mean']:.1%} by the other passes",
        f"rule of {said['rule_leaves']} leaves: {said['rule_mean']:.1%}; on a shape it was not fitted on: "
        f"{said['rule_unseen_mean']:.1%}, worst {said['rule_unseen_worst']:.1%}",
    ]
