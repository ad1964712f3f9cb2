"""Trials until the mean regret over all shapes is 5 %: together, and one shape after the other.

A shape that was not tried yet has the first config of the space, one that was tried the best of its trials. Whoever
tunes one shape after the other chooses how many trials each gets; here it is the fewest that reach 5 %, by bisection.

- `joint`: as `tunewright tune --shapes` does it.
- `alone`: as `tunewright tune` does it shape after shape, with transfer (`shapes_alone.py`), in the order that is best
  for it: `asked` (shapes that tell most about the others first, by `shapes_to_tune`), `random`, or `sources`: as
  `asked`, and the first four get 32 trials, as priors for the others. `trials_ratio` is to the best of these medians.
- `modeled`: shapes in random order, by the joint model on their own trials, after the best configs found so far for
  their four nearest shapes. Nothing that ships does this.
- `foreseen`: the same, all shapes at once, after the best of *all* configs of their nearest shapes, free of charge.
  Nobody can do that; it is what seeds could give at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Any

import numpy as np
from shapes_alone import Made, tuned_in_turn
from shapes_table import WITHIN, Table, shape_table

from tunewright.shapes.features import Features
from tunewright.shapes.joint_model import JointModel
from tunewright.shapes.planning import TrialPlan
from tunewright.shapes.selection import expected_gains, shapes_to_tune

NEIGHBOURS = 4
SOURCES, SOURCE_TRIALS = 4, 32
FIRST_EACH = 8
"""Trials of each shape that are tried first; then twice as many, and so on."""

WAYS = ("joint", "alone_asked", "alone_random", "alone_sources", "modeled", "foreseen")

Sweep = Callable[[int], Iterable[Made]]
"""The trials of all shapes if each gets so many."""


def until_near(table: Table, made: Iterable[Made]) -> int | None:
    """How many of these trials it takes; None if they are too few."""
    best = np.full(len(table.shapes), np.inf)
    regret = np.array([table.regret(shape, 0) for shape in range(len(table.shapes))])
    for count, (shape, config) in enumerate(made, 1):
        if table.chosen_by[shape, config] < best[shape]:
            best[shape], regret[shape] = table.chosen_by[shape, config], table.regret(shape, config)
        if regret.mean() <= WITHIN:
            return count
    return None


def fewest(table: Table, sweep: Sweep) -> int:
    """How many trials it takes in all with the fewest for each shape that are enough."""
    low, high = 0, FIRST_EACH
    while (found := until_near(table, sweep(high))) is None and high < len(table.configs):
        low, high = high, 2 * high
    while found is not None and high - low > 1:
        middle = (low + high) // 2
        fewer = until_near(table, sweep(middle))
        low, high, found = (middle, high, found) if fewer is None else (low, middle, min(found, fewer))
    return found or table.chosen_by.size


def joint_trials(table: Table, seed: int) -> int:
    """Trials if every one informs all shapes."""
    plan = TrialPlan(shape_table(table, np.zeros(table.chosen_by.shape, dtype=bool)), seed=seed)

    def made() -> Iterator[Made]:
        while wanted := plan.next():
            for place in wanted:
                plan.seconds[place] = table.chosen_by[place]
                yield place

    return until_near(table, made()) or table.chosen_by.size


def shipped_trials(table: Table, order: Sequence[int], seed: int, first: Sequence[int] = ()) -> int:
    """Trials if shapes are tuned as it is shipped; the first get at least so many."""

    def sweep(each: int) -> Iterable[Made]:
        more = [max(each, count) for count in first]
        return tuned_in_turn(table, order, [*more, *[each] * (len(order) - len(more))], seed)

    return fewest(table, sweep)


def modeled_trials(table: Table, seed: int, features: Features) -> int:
    """Trials if shapes are tuned one by one with the joint model, from the seeds of those before."""
    return fewest(table, lambda each: modeled_in_turn(table, each, features, np.random.default_rng(seed)))


def modeled_in_turn(table: Table, each: int, features: Features, rng: np.random.Generator) -> Iterator[Made]:
    """The trials of one shape after the other in random order, as many for each."""
    tried = np.zeros(table.chosen_by.shape, dtype=bool)
    done: list[int] = []
    for shape in rng.permutation(len(table.shapes)).tolist():
        best = np.where(tried, table.chosen_by, np.inf).argmin(axis=1)
        seeds = [int(best[j]) for j in table.near(shape, done, NEIGHBOURS)]
        for _, config in zip(range(each), own_search(table, shape, seeds, features, rng), strict=False):
            tried[shape, config] = True
            yield shape, config
        done.append(shape)


def foreseen_trials(table: Table, seed: int, features: Features) -> int:
    """Trials if the best configs of all other shapes are known, free of charge."""
    rng, best, everything = np.random.default_rng(seed), table.chosen_by.argmin(axis=1), range(len(table.shapes))
    near = [table.near(shape, [j for j in everything if j != shape], NEIGHBOURS) for shape in everything]
    searches = [own_search(table, i, [int(best[j]) for j in near[i]], features, rng) for i in everything]
    made = ((shape, next(searches[shape])) for _ in table.configs for shape in everything)
    return until_near(table, made) or table.chosen_by.size


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
    """Medians over seeds, with the least and the greatest."""
    features, asked = (
        Features(len(table.names), table.configs),
        shapes_to_tune(shape_table(table).only([]), len(table.shapes)),
    )
    ways: dict[str, Callable[[int], int]] = {
        "joint": lambda seed: joint_trials(table, seed),
        "alone_asked": lambda seed: shipped_trials(table, asked, seed),
        "alone_random": lambda seed: shipped_trials(table, drawn_order(table, seed), seed),
        "alone_sources": lambda seed: shipped_trials(table, asked, seed, [SOURCE_TRIALS] * SOURCES),
        "modeled": lambda seed: modeled_trials(table, seed, features),
        "foreseen": lambda seed: foreseen_trials(table, seed, features),
    }
    found = {name: [way(seed) for seed in range(seeds)] for name, way in ways.items()}
    said: dict[str, Any] = {f"trials_{name}": median(counts) for name, counts in found.items()}
    said["trials_alone"] = min(median(counts) for name, counts in found.items() if name.startswith("alone"))
    said |= {f"trials_{name}_range": [min(counts), max(counts)] for name, counts in found.items()}
    for ratio, peer in (("trials_ratio", "alone"), ("trials_ratio_modeled", "modeled")):
        said[ratio] = round(said["trials_joint"] / said[f"trials_{peer}"], 4)
    return said


def drawn_order(table: Table, seed: int) -> list[int]:
    """All shapes in random order."""
    return [int(shape) for shape in np.random.default_rng(seed).permutation(len(table.shapes))]
