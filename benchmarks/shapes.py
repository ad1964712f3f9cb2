"""What is lost when a shape is served with another shape's config, and what a new shape saves by its neighbours.

    python benchmarks/shapes.py [--quick] [--json] [--record] [--only KERNEL] [--table FILE] [--plot FILE]

Kernels in C are recorded on 24 shapes and more, all configs of a reduced space on each: a matrix product, from skinny
to square, a layer norm of rows, a direct convolution, sums of rows of a table, transposes, scores of attention, and
depthwise convolutions. Many shapes are powers of two, each the top of a bucket; others lie within these buckets. A
kernel of which no table is kept is left out. Figures with a goal are those of the kernel that does worst.

- Table size against regret: some shapes are tuned, every other one is served by the nearest tuned shape, near by the
  logarithms of sizes. Which shapes are tuned: `random` ones, with the spread over draws; `apart`, each the
  farthest from those before, which can be done before anything is timed; `greedy`, each the one that helps most, which
  takes the whole table to know.
- `blend`: tuned at random, but served by the config that is best for the three nearest tuned shapes together.
- `buckets`: each shape between is served by the top of its power-of-two bucket.
- `one`: the single config that is best for all in hindsight.
- Seeds: a new shape tries the best configs of its nearest shapes first, and then goes on at random; beside it from
  scratch at random. Trials until one is within 5 % of the best: medians over shapes and orders.

What is done for all shapes together, a model, a cover and a rule, is in `shapes_joint.py`; 10,000 random lengths, in
`shapes_lengths.py`; what a rule costs in a launch, in `shapes_lookup.py`. `shapes_kernels.py` has the kernels.
`shapes_many.py` is about hundreds of shapes.

Configs are chosen by some passes of the recording and judged by the others, so that luck does not count as skill.
`floor` is the regret of a shape's own best config: what the noise alone costs, in every figure here.

`--record` makes the tables anew on this machine (minutes each); `--quick` draws less often.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import record_spaces as recorder
from figures import Goal, Report, parser
from shapes_joint import TUNED, joint_figures, joint_lines
from shapes_kernels import KERNELS
from shapes_lengths import length_figures, length_line
from shapes_lookup import lookup_figures, lookup_line
from shapes_table import PASSES, Floats, Shape, Table, record_table

KEPT = recorder.KEPT / "shapes"
SIZES = (1, 2, 4, 8, 16)
NEIGHBOURS = 4
BLENDED = 3
SPREAD = ("mean", "low", "high", "worst")
NEAR = 0.05
GOALS = (
    Goal("untuned_mean", "<=", 0.08),
    Goal("untuned_worst", "<=", 0.30),
    Goal("trials_ratio", "<=", 0.5),
    Goal("cover_configs", "<=", 8),
    Goal("rule_extra", "<=", 0.02),
    Goal("p95", "<=", 0.06),
    Goal("rule_launch_extra_us", "<=", 1.0),
)

Way = Callable[["Table", int], list[int]]
"""Which shapes to tune, given how many."""


def bucket(shape: Shape) -> Shape:
    """Sizes rounded up to powers of two."""
    return tuple(1 << (size - 1).bit_length() for size in shape)


def apart(table: Table, count: int) -> list[int]:
    """Shapes far from each other, beginning with the one in the middle."""
    tuned = [int(table.distances.sum(axis=1).argmin())]
    while len(tuned) < count:
        tuned.append(int(table.distances[:, tuned].min(axis=1).argmax()))
    return tuned


def greedy(table: Table, count: int) -> list[int]:
    """Shapes of which each lowers the regret of the others most."""
    tuned: list[int] = []
    while len(tuned) < count:
        left = [i for i in range(len(table.shapes)) if i not in tuned]
        tuned.append(min(left, key=lambda i: float(table.served([*tuned, i]).mean())))
    return tuned


def drawn(table: Table, count: int, draws: int) -> Iterator[list[int]]:
    """Shapes drawn at random, the same each time."""
    rng = np.random.default_rng(count)
    for _ in range(draws):
        yield rng.choice(len(table.shapes), count, replace=False).tolist()


def regrets(found: Floats) -> dict[str, float]:
    return {"mean": round(float(found.mean()), 4), "worst": round(float(found.max()), 4)}


def spread(samples: Sequence[Floats]) -> dict[str, float]:
    """The mean regret over draws, between which nine of ten lie, and the median draw's worst."""
    means = [float(sample.mean()) for sample in samples]
    low, high = np.quantile(means, (0.05, 0.95))
    worst = median(float(sample.max()) for sample in samples)
    return {name: round(float(x), 4) for name, x in zip(SPREAD, (np.mean(means), low, high, worst), strict=True)}


def curve(table: Table, draws: int) -> dict[str, Any]:
    """Regret by table size, for each way to choose which shapes are tuned."""
    ways: dict[str, Way] = {"apart": apart, "greedy": greedy}
    found: dict[str, Any] = {}
    for size in (size for size in SIZES if size < len(table.shapes)):
        one: dict[str, Any] = {name: regrets(table.served(way(table, size))) for name, way in ways.items()}
        one["random"] = spread([table.served(tuned) for tuned in drawn(table, size, draws)])
        one["blend"] = spread([table.served(tuned, BLENDED) for tuned in drawn(table, size, draws)])
        found[f"table_{size}"] = one
    return found


def bucketed(table: Table) -> dict[str, Any]:
    """Shapes between, each served by the top of its bucket."""
    tops = {shape: i for i, shape in enumerate(table.shapes) if bucket(shape) == shape}
    between = [i for i, shape in enumerate(table.shapes) if shape not in tops and bucket(shape) in tops]
    best = table.slower.argmin(axis=1)
    found = [table.regret(i, int(best[tops[bucket(table.shapes[i])]])) for i in between]
    return {"size": len(tops)} | regrets(np.array(found or [0.0]))


def one_for_all(table: Table) -> dict[str, float]:
    """The config with the least mean regret over all shapes."""
    config = int(table.slower.mean(axis=0).argmin())
    return regrets(np.array([table.regret(i, config) for i in range(len(table.shapes))]))


def seeded(table: Table, draws: int) -> dict[str, Any]:
    """Trials until one is near the best: seeds of the nearest shapes first, or none."""
    rng, counts = np.random.default_rng(0), {"scratch": [], "seeds": []}
    firsts: list[float] = []
    best = table.chosen_by.argmin(axis=1)
    for i, times in enumerate(table.judged_by):
        near = table.near(i, [j for j in range(len(table.shapes)) if j != i], NEIGHBOURS)
        seeds = list(dict.fromkeys(int(best[j]) for j in near))
        good = times <= (1 + NEAR) * times.min()
        firsts.append(float(times[seeds].min() / times.min() - 1))
        for _ in range(draws):
            order = rng.permutation(len(times)).tolist()
            counts["scratch"].append(1 + int(good[order].argmax()))
            led = seeds + [config for config in order if config not in seeds]
            counts["seeds"].append(1 + int(good[led].argmax()))
    trials = {name: median(values) for name, values in counts.items()}
    tenths = {name: float(np.quantile(values, 0.9)) for name, values in counts.items()}
    return {
        "trials_scratch": trials["scratch"],
        "trials_seeds": trials["seeds"],
        "trials_saved": trials["scratch"] - trials["seeds"],
        "trials_90": tenths,
        "after_seeds": regrets(np.array(firsts)),
        "reached": {name: reached(values) for name, values in counts.items()},
    }


def reached(counts: Sequence[int]) -> list[float]:
    """The share of searches that are near the best after one trial, two, and so on to fifty."""
    return [round(float(np.mean(np.array(counts) <= n)), 4) for n in range(1, 51)]


def figures_of(table: Table, draws: int) -> dict[str, Any]:
    """Everything that is reported."""
    own = np.array([table.regret(i, int(best)) for i, best in enumerate(table.slower.argmin(axis=1))])
    return {
        "shapes": len(table.shapes),
        "configs": len(table.configs),
        "floor": regrets(own),
        "one": one_for_all(table),
        **curve(table, draws),
        "buckets": bucketed(table),
        **seeded(table, draws),
    }


def lines(said: dict[str, Any]) -> list[str]:
    """For people."""

    def text(one: dict[str, Any]) -> str:
        spread = f" ({one['low']:.1%} to {one['high']:.1%})" if "low" in one else ""
        return f"{one['mean']:.1%}{spread}, worst {one['worst']:.1%}"

    made = [f"{said['shapes']} shapes, {said['configs']} configs; regret of a shape's own best: {text(said['floor'])}"]
    made.append(f"  one config for all, in hindsight: {text(said['one'])}")
    for size in SIZES:
        for way, one in said.get(f"table_{size}", {}).items():
            made.append(f"  {size:>2} tuned, {way:<7} {text(one)}")
    made.append(f"  {said['buckets']['size']} buckets of powers of two: {text(said['buckets'])}")
    made.append(
        f"trials until within {NEAR:.0%}: {said['trials_seeds']:g} with neighbours' seeds, "
        f"{said['trials_scratch']:g} from scratch; nine of ten searches: {said['trials_90']['seeds']:g} and "
        f"{said['trials_90']['scratch']:g}; after the seeds alone: {text(said['after_seeds'])}"
    )
    return made


def kernel_figures(table: Table, *, quick: bool) -> dict[str, Any]:
    """What one recorded kernel says."""
    found = figures_of(table, 20 if quick else 200)
    if len(table.shapes) > TUNED:
        found |= joint_figures(table, list(drawn(table, TUNED, 12 if quick else 24)), 3 if quick else 5)
    return found


def worst(kernels: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The figures that have goals, of the kernel that does worst in each."""
    names = [goal.figure for goal in GOALS]
    found = {name: [one[name] for one in kernels.values() if name in one] for name in names}
    return {name: max(values) for name, values in found.items() if values}


def report_kernel(report: Report, name: str, said: dict[str, Any]) -> None:
    report.lines += [f"{name}:", *lines(said)]
    if "untuned_mean" in said:
        report.lines += joint_lines(said)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read or record, compute, report."""
    takes = parser(__doc__)
    takes.add_argument("--record", action="store_true", help="make the tables anew on this machine")
    takes.add_argument("--only", choices=KERNELS, help="one kernel")
    takes.add_argument("--passes", type=int, default=PASSES, help="of a recording")
    takes.add_argument("--table", type=Path, metavar="FILE", help="a table that is kept elsewhere")
    takes.add_argument("--plot", type=Path, metavar="FILE", help="draw a kernel, too: the only one, or the product")
    given = takes.parse_args(arguments)
    names = [given.only] if given.only else list(KERNELS)
    usual = {name: KEPT / f"{name}-{recorder.device_name()}.parquet" for name in names}
    if given.record:
        for name, path in usual.items():
            record_table(path, KERNELS[name], given.passes)
    paths = (
        {"table": given.table} if given.table else {n: p for n in names for p in sorted(KEPT.glob(f"{n}-*.parquet"))}
    )
    report, kernels = Report(), {}
    for name, path in paths.items():
        kernels[name] = kernel_figures(Table.read(path), quick=given.quick)
        report_kernel(report, name, kernels[name])
    asked = length_figures(1000 if given.quick else 10_000)
    looked_up = lookup_figures(5 if given.quick else 25)
    report.figures = worst(kernels) | {"kernels": kernels} | asked | looked_up
    report.lines += [length_line(asked), lookup_line(looked_up)]
    if given.plot:
        from shapes_plot import draw

        draw(given.plot, next(iter(kernels.values())))
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
