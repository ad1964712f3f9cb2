"""What is lost when a shape is served with another shape's config, and what a new shape saves by its neighbours.

    python benchmarks/shapes.py [--quick] [--json] [--record] [--table FILE] [--plot FILE]

A matrix product in C was recorded on shapes from skinny to square: all configs of a reduced space on each. Half of the
shapes are powers of two, each the top of a bucket; the other half lie within these buckets.

- Table size against regret: some shapes are tuned, every other one is served by the nearest tuned shape, near by the
  logarithms of M, N and K. Which shapes are tuned: `random` ones, with the spread over draws; `apart`, each the
  farthest from those before, which can be done before anything is timed; `greedy`, each the one that helps most, which
  takes the whole table to know.
- `blend`: tuned at random, but served by the config that is best for the three nearest tuned shapes together.
- `buckets`: each shape between is served by the top of its power-of-two bucket.
- `one`: the single config that is best for all in hindsight.
- Seeds: a new shape tries the best configs of its nearest shapes first, and then goes on at random; beside it from
  scratch at random. Trials until one is within 5 % of the best: medians over shapes and orders.

What is done for all shapes together, a model, a cover and a rule, is in `shapes_joint.py`; what a rule costs in a
launch, in `shapes_lookup.py`.

Configs are chosen by some passes of the recording and judged by the others, so that luck does not count as skill.
`floor` is the regret of a shape's own best config: what the noise alone costs, in every figure here.

`--record` makes the table anew on this machine (minutes); `--quick` draws less often.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import record_spaces as recorder
import space_kinds as kinds
from figures import Goal, Report, parser
from numpy.typing import NDArray
from shapes_joint import TUNED, joint_figures, joint_lines
from shapes_lookup import lookup_figures

import tunewright as tw

KEPT = recorder.KEPT / "shapes"
SIZES = (1, 2, 4, 8, 16)
NEIGHBOURS = 4
PASSES = 12
BLENDED = 3
SPREAD = ("mean", "low", "high", "worst")
NEAR = 0.05
GOALS = (
    Goal("untuned_mean", "<=", 0.08),
    Goal("untuned_worst", "<=", 0.30),
    Goal("trials_ratio", "<=", 0.5),
    Goal("cover_configs", "<=", 8),
    Goal("rule_extra", "<=", 0.02),
    Goal("rule_launch_extra_us", "<=", 1.0),
)

# Powers of two, and beside each a shape of the same bucket.
SHAPES = (
    ((8, 512, 512), (5, 400, 320)),
    ((16, 1024, 64), (12, 800, 50)),
    ((32, 32, 1024), (24, 20, 640)),
    ((64, 64, 64), (48, 50, 60)),
    ((64, 512, 128), (50, 300, 100)),
    ((128, 128, 128), (100, 120, 90)),
    ((128, 1024, 32), (72, 600, 27)),
    ((256, 16, 512), (200, 10, 300)),
    ((256, 256, 256), (192, 250, 160)),
    ((512, 64, 64), (384, 40, 48)),
    ((512, 512, 16), (300, 500, 9)),
    ((1024, 128, 128), (700, 96, 100)),
)
REDUCED = kinds.space(
    {
        "VW": [8, 16],
        "MR": [1, 4, 6, 12],
        "NR": [1, 2, 3],
        "KB": [32, 400],
        "NB": [256],
        "PACK": [0, 1, 2],
        "UNROLL": [1],
        "ORDER": [0, 1],
        "PADDED": [1],
    },
    ["MR * NR + NR < 32"],
)

Floats = NDArray[np.float64]
Shape = tuple[int, int, int]
Way = Callable[["Table", int], list[int]]
"""Which shapes to tune, given how many."""


@tw.tune(REDUCED, backend=kinds.backend("gemm", sizes="arguments"), reference=np.matmul)
def gemm(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...


@dataclass(frozen=True)
class Table:
    """Seconds of every config (a column each) on every shape (a row each), twice: to choose by, and to judge by."""

    shapes: list[Shape]
    configs: list[tw.Config]
    chosen_by: Floats
    judged_by: Floats

    @classmethod
    def read(cls, path: Path) -> Table:
        """The table at `NAME.parquet`: a row for each shape and config."""
        from pyarrow import parquet

        columns = parquet.read_table(path).to_pydict()
        names = [name for name in columns if name not in ("M", "N", "K") and not name.endswith("_ms")]
        shapes = list(dict.fromkeys(zip(columns["M"], columns["N"], columns["K"], strict=True)))
        rows = [dict(zip(names, row, strict=True)) for row in zip(*(columns[n] for n in names), strict=True)]
        configs = list(dict.fromkeys(map(tw.Config, rows)))
        grid = (len(shapes), len(configs))
        first, second = (np.array(columns[name]).reshape(grid) / 1e3 for name in ("choose_ms", "judge_ms"))
        return cls(shapes, configs, first, second)

    @cached_property
    def distances(self) -> Floats:
        """How far shapes are apart, in doublings."""
        logs = np.log2(np.array(self.shapes, dtype=np.float64))
        return np.sqrt(((logs[:, None] - logs[None, :]) ** 2).sum(axis=-1))

    @cached_property
    def slower(self) -> Floats:
        """By how much each config is slower than the best of its shape, as a logarithm; to choose by."""
        return np.asarray(np.log(self.chosen_by / self.chosen_by.min(axis=1, keepdims=True)))

    def regret(self, shape: int, config: int) -> float:
        """By how much a config is slower than the best of a shape; to judge by."""
        return float(self.judged_by[shape, config] / self.judged_by[shape].min() - 1)

    def near(self, shape: int, tuned: Sequence[int], count: int) -> list[int]:
        """The nearest of those that are tuned."""
        return sorted(tuned, key=lambda other: self.distances[shape, other])[:count]

    def served(self, tuned: Sequence[int], count: int = 1) -> Floats:
        """Regret of all other shapes, each served by the config that is best for its nearest tuned shapes together."""
        others = [i for i in range(len(self.shapes)) if i not in tuned]
        return np.array(
            [self.regret(i, int(self.slower[self.near(i, tuned, count)].mean(axis=0).argmin())) for i in others]
        )


def bucket(shape: Shape) -> Shape:
    """Sizes rounded up to powers of two."""
    m, n, k = (1 << (size - 1).bit_length() for size in shape)
    return m, n, k


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
    return {"size": len(tops)} | regrets(np.array(found))


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


def record_table(path: Path, kernel: tw.Tuned, shapes: Sequence[Shape]) -> None:
    """Time the space of a matrix product on every shape, and keep the table."""
    import pyarrow as pa
    from pyarrow import parquet

    configs, rows = list(kernel.space), []
    for m, n, k in shapes:
        recorder.say(f"{m} x {n} x {k}")
        job = kinds.Job(kernel, kinds.normal((m, k), (k, n)), kinds.floats(m, n), np.matmul)
        folder = kernel.kernel.cache / "recording" / f"shape-{m}-{n}-{k}-{job.mark}"
        folder.mkdir(parents=True, exist_ok=True)
        built = recorder.build_all(job, configs, folder / "builds.jsonl")
        timed = recorder.time_all(job, built, folder, PASSES)
        if timed.wrong or any(one.refused for one in built):
            raise ValueError(f"some configs fail on {m} x {n} x {k}")
        for config, seconds in zip(configs, timed.seconds * 1e3, strict=True):
            halves = {"choose_ms": seconds[::2].min(), "judge_ms": seconds[1::2].min()}
            rows.append({"M": m, "N": n, "K": k, **config, **{name: recorder.short(x) for name, x in halves.items()}})
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows), path, compression="zstd")
    about = {"kernel": "gemm", "device": recorder.device_name(), "compiler": kernel.backend.compiler[1]}
    path.with_suffix(".json").write_text(json.dumps(about | {"flags": kinds.FLAGS}, indent=1) + "\n")


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Read or record, compute, report."""
    usual = KEPT / f"gemm-{recorder.device_name()}.parquet"
    takes = parser(__doc__)
    takes.add_argument("--record", action="store_true", help="make the table anew on this machine")
    takes.add_argument("--table", type=Path, metavar="FILE", help="the recorded table")
    takes.add_argument("--plot", type=Path, metavar="FILE", help="draw it, too")
    given = takes.parse_args(arguments)
    path = given.table or (usual if given.record else next(iter(sorted(KEPT.glob("*.parquet"))), usual))
    if given.record:
        record_table(path, gemm, [shape for pair in SHAPES for shape in pair])
    report = Report()
    table = Table.read(path)
    report.figures = figures_of(table, 20 if given.quick else 200)
    report.lines = lines(report.figures)
    if len(table.shapes) > TUNED:
        together = joint_figures(table, list(drawn(table, TUNED, 4 if given.quick else 24)), 1 if given.quick else 5)
        report.figures |= together
        report.lines += joint_lines(together)
    looked_up = lookup_figures(5 if given.quick else 25)
    report.figures |= looked_up
    report.lines.append(
        f"a launch that a rule serves takes {looked_up['rule_launch_extra_us']:.3f} us more than one that is decided; "
        f"the first look-up {looked_up['rule_first_us']:.0f} us, {looked_up['exact_first_us']:.0f} us if it is decided"
    )
    if given.plot:
        from shapes_plot import draw

        draw(given.plot, report.figures)
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
