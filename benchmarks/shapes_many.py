"""Hundreds of shapes and few trials: what all shapes lose, tuned or not.

    python benchmarks/shapes_many.py [--quick] [--json] [--only KERNEL ...]

For each kernel of `shapes.py`, shapes are drawn between its smallest and largest sizes, evenly by their logarithms, and
have weights that differ by far, as those of real calls do. Their times are those that the joint model predicts when it
was fitted to the whole table, with noise: no machine could record so many. So these figures compare ways to search, and
favor those that use the model; how well it knows a kernel is said by `shapes.py`, whose times were all measured.

- `joint`: `TrialPlan`, what `tunewright tune --shapes` does. Shapes get the best config that was tried on them, others
  what the model predicts.
- `served`: the same trials; others get what `tunewright cover --serve` serves, or else the config of the nearest shape.
- `alone`: shapes, drawn by weight, are tuned one by one as `tunewright tune` does it, with transfer, so many trials for
  each; others get the config of the nearest. The best number of trials for each shape is taken, in hindsight.

All figures are the mean loss by weight after so many trials of all shapes together, medians over seeds. Those with a
goal are of the kernel that does worst.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from figures import Goal, Report, parser
from shapes_alone import tuned_in_turn
from shapes_kernels import KERNELS
from shapes_table import WITHIN, Floats, Shape, Table, shape_table

from tunewright.shapes.cover import cover
from tunewright.shapes.estimates import with_estimates
from tunewright.shapes.joint_model import JointModel
from tunewright.shapes.planning import TrialPlan
from tunewright.shapes.rules import fit_rule
from tunewright.shapes.table import ShapeTable
from tunewright.spaces.config import Config

KEPT = Path(__file__).resolve().parent.parent / "spaces" / "shapes"
SHAPES, NOISE, SKEW = 400, 0.02, 1.5
MARKS = (100, 200, 400)
EACH = (8, 16, 32)
QUICK = ("direct", "gemm", "layernorm")
GOALS = (Goal("joint_200", "<=", 0.08), Goal("served_200", "<=", 0.08))
WAYS = ("joint", "served", "alone")


def modeled_table(recorded: Table, seed: int) -> tuple[Table, Floats]:
    """Drawn shapes with the times of all configs, and their weights."""
    rng, model = np.random.default_rng(seed), JointModel(shape_table(recorded))
    low, high = (np.log(getattr(np.array(recorded.shapes), end)(axis=0)) for end in ("min", "max"))
    drawn = np.exp(rng.uniform(low, high + 1e-9, (SHAPES, len(low)))).round().astype(int).tolist()
    shapes: list[Shape] = list(dict.fromkeys(map(tuple, drawn)))
    logs = np.array([model.predict(shape) for shape in shapes])
    first, second = (np.exp(logs + rng.normal(0, NOISE, logs.shape)) for _ in range(2))
    return Table(shapes, recorded.configs, first, second, recorded.names), np.exp(rng.normal(0, SKEW, len(shapes)))


def loss(table: Table, weights: Floats, configs: list[int]) -> float:
    """The mean loss by weight, if these configs serve the shapes."""
    return float(weights @ [table.regret(i, config) for i, config in enumerate(configs)] / weights.sum())


def own_best(known: ShapeTable) -> dict[int, int]:
    """The best config that was tried on each shape."""
    best = np.where(known.works, known.seconds, np.inf).argmin(axis=1)
    return {shape: int(best[shape]) for shape in known.timed}


def nearest(table: Table, own: dict[int, int]) -> list[int]:
    """For each shape its own config, or that of the nearest shape that has one."""
    return [own[i] if i in own else own[table.near(i, list(own), 1)[0]] for i in range(len(table.shapes))]


def ruled(table: Table, known: ShapeTable, own: dict[int, int]) -> list[int]:
    """For each shape its own config, or that of the rule, or that of the nearest."""
    rule = fit_rule(cover(with_estimates(known), WITHIN), "kernel")
    found = nearest(table, own)
    for shape in set(range(len(found))) - set(own):
        config = rule.config(known.named(shape))
        found[shape] = found[shape] if config is None else known.configs.index(Config(config))
    return found


def jointly(table: Table, weights: Floats, trials: int, seed: int) -> tuple[float, float]:
    """What is lost after trials that inform all shapes: by the model, and by what is served."""
    nothing = np.zeros(table.chosen_by.shape, dtype=bool)
    empty = shape_table(table, nothing)
    plan = TrialPlan(
        ShapeTable(empty.names, empty.shapes, empty.configs, empty.seconds, weights), trials=trials, seed=seed
    )
    made = 0
    while made < trials and (wanted := plan.next()):
        for place in wanted[: trials - made]:
            plan.seconds[place] = table.chosen_by[place]
            made += 1
    known = plan.table
    own, model = own_best(known), JointModel(known)
    predicted = [own[i] if i in own else model.best(shape) for i, shape in enumerate(table.shapes)]
    return loss(table, weights, predicted), loss(table, weights, ruled(table, known, own))


def one_by_one(table: Table, weights: Floats, trials: int, seed: int) -> float:
    """What is lost if as many shapes as there are trials for are tuned one by one, with the best number for each."""
    rng, found = np.random.default_rng(seed), []
    order = rng.choice(len(table.shapes), max(1, trials // EACH[0]), replace=False, p=weights / weights.sum()).tolist()
    for each in EACH:
        tuned = order[: max(1, trials // each)]
        tried = np.zeros(table.chosen_by.shape, dtype=bool)
        for place in tuned_in_turn(table, tuned, [each] * len(tuned), seed):
            tried[place] = True
        found.append(loss(table, weights, nearest(table, own_best(shape_table(table, tried)))))
    return min(found)


def kernel_figures(recorded: Table, seeds: int, marks: Sequence[int]) -> dict[str, Any]:
    """All of them, for one kernel."""
    said: dict[str, Any] = {}
    for trials in marks:
        rows = []
        for seed in range(seeds):
            table, weights = modeled_table(recorded, seed)
            rows.append((*jointly(table, weights, trials, seed), one_by_one(table, weights, trials, seed)))
        for name, values in zip(WAYS, zip(*rows, strict=True), strict=True):
            said[f"{name}_{trials}"] = round(median(values), 4)
            said[f"{name}_{trials}_range"] = [round(min(values), 4), round(max(values), 4)]
    return said


def line(name: str, said: dict[str, Any], marks: Sequence[int]) -> str:
    """For people."""
    parts = [", ".join(f"{way} {said[f'{way}_{trials}']:.1%}" for way in WAYS) for trials in marks]
    return f"{name}: " + "; ".join(f"{trials} trials: {part}" for trials, part in zip(marks, parts, strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, search, report."""
    takes = parser(__doc__)
    takes.add_argument("--only", choices=KERNELS, nargs="+", help="these kernels")
    given = takes.parse_args(arguments)
    marks, seeds = (MARKS[:2], 2) if given.quick else (MARKS, 5)
    report, kernels = Report(), dict[str, dict[str, Any]]()
    for path in sorted(KEPT.glob("*.parquet")):
        name = path.stem.partition("-")[0]
        if name in (given.only or (QUICK if given.quick else KERNELS)):
            kernels[name] = kernel_figures(Table.read(path), seeds, marks)
            report.lines.append(line(name, kernels[name], marks))
    worst = {goal.figure: max((said[goal.figure] for said in kernels.values()), default=None) for goal in GOALS}
    report.figures |= {"kernels": kernels, **worst}
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
