"""What declared buckets save and cost: ten thousand random lengths through them, on a recorded kernel.

    python benchmarks/buckets.py [--quick] [--json] [--record] [--passes N] [--lengths 10000]

A matrix product in C (M x 128 x 128) was recorded on lengths M from 1 to 2048, two to a doubling, all configs of a
small space on each; between recorded lengths the logarithm of a config's time is interpolated. Random lengths are
then asked for through the usual front, with M in power-of-two buckets: the first call of a bucket tunes it (on the
recorded times at the bucket's size), all others are answered.

Reported: tunings against buckets, answers by tier, and the regret of a length's answer against the best config for
exactly that length. `floor` is the regret of that best config itself: configs are chosen by half of the recording's
passes and judged by the other, so that luck does not count as skill. `default` is the regret of not tuning.

`--record` makes the table anew on this machine (minutes).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import record_spaces as recorder
import space_kinds as kinds
from figures import Goal, Report, parser
from shapes_lengths import KEPT, Between
from shapes_table import PASSES, Floats, Recorded, Table, record_table

import tunewright as tw
from tunewright.model.decision import Tier
from tunewright.model.trial import Timing, Trial, TrialRequest

SIDE, LONGEST = 128, 2048
LENGTHS = sorted({(1 << e) * q // 2 for e in range(12) for q in (2, 3)} & set(range(1, LONGEST + 1)))
SPACE = kinds.space(
    {
        "VW": [8, 16],
        "MR": [1, 2, 4, 6, 8, 12],
        "NR": [1, 2, 3],
        "KB": [128],
        "NB": [128],
        "PACK": [0, 2],
        "UNROLL": [1],
        "ORDER": [0],
        "PADDED": [1],
    },
    ["MR * NR + NR < 32"],
)
GOALS = (Goal("tunings_over_buckets", "<=", 1.0), Goal("answers_without_tier", "==", 0))


@tw.tune(SPACE, backend=kinds.backend("gemm", sizes="arguments"), reference=np.matmul, buckets={"M": "pow2"})
def gemm(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...


def job(m: int, n: int, k: int) -> kinds.Job:
    return kinds.Job(gemm, kinds.normal((m, k), (k, n)), kinds.floats(m, n), np.matmul)


class Replayed:
    """An attempt that looks up what was recorded at one length."""

    def __init__(self, table: Table, between: Between, length: int) -> None:
        times = between.seconds(length, judged=False)
        self._seconds = dict(zip(table.configs, times.tolist(), strict=True))

    def __call__(self, entry: TrialRequest) -> Trial:
        return Trial(entry.config, Timing((self._seconds[entry.config],), "cpu"))


def asked(table: Table, lengths: Sequence[int], folder: Path) -> dict[str, Any]:
    """Ask for every length in turn, and judge each answer."""
    session = tw.Session(
        cache=str(folder), pool="serial", strategy="exhaustive", trials=len(table.configs), min_expected_gain=0
    )
    gemm.using(session)
    number = {config: i for i, config in enumerate(table.configs)}
    between = Between(table)
    b, tall, found = np.zeros((SIDE, SIDE), np.float32), np.zeros((LONGEST, SIDE), np.float32), []
    for length in lengths:
        problem = gemm.problem([tall[:length], b, tall[:length]])
        bucket = problem.key.signature.dims["M"]
        answer = session.lookup_or_policy(problem) or session.resolve(problem, Replayed(table, between, bucket))
        chosen, judged = between.seconds(length, judged=False), between.seconds(length, judged=True)
        configs = (number[answer.config], int(chosen.argmin()), number[gemm.default])
        found.append([judged[config] / judged.min() - 1 for config in configs])
    regrets = np.array(found)
    buckets = len({1 << (length - 1).bit_length() for length in lengths})
    tiers = {str(tier): session.counts[str(tier)] for tier in Tier if session.counts[str(tier)]}
    return {
        "lengths": len(lengths),
        "distinct": len(set(lengths)),
        "buckets": buckets,
        "tunings": session.counts["searches"],
        "tunings_over_buckets": session.counts["searches"] / buckets,
        "tiers": tiers,
        "answers_without_tier": len(lengths) - session.counts["searches"] - sum(tiers.values()),
        **{name: told(regrets[:, i]) for i, name in enumerate(("regret", "floor", "default"))},
    }


def told(regret: Floats) -> dict[str, float]:
    low, high = np.quantile(regret, (0.5, 0.95))
    shares = {"mean": regret.mean(), "median": low, "p95": high, "worst": regret.max()}
    return {name: round(float(value), 4) for name, value in shares.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Read or record, ask, report."""
    usual = KEPT / f"gemm-{recorder.device_name()}.parquet"
    takes = parser(__doc__)
    takes.add_argument("--record", action="store_true", help="make the table anew on this machine")
    takes.add_argument("--passes", type=int, default=PASSES, help="passes of --record")
    takes.add_argument("--lengths", type=int, help="how many are asked for: 10000, or 1000 if quick")
    given = takes.parse_args(arguments)
    path = usual if given.record else next(iter(sorted(KEPT.glob("*.parquet"))), usual)
    if given.record:
        recorded = Recorded("gemm", ("M", "N", "K"), [(m, SIDE, SIDE) for m in LENGTHS], job)
        record_table(path, recorded, given.passes)
    count = given.lengths or (1000 if given.quick else 10_000)
    lengths = np.random.default_rng(0).integers(1, LONGEST + 1, count).tolist()
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        report.figures = asked(Table.read(path), lengths, Path(folder))
    said = report.figures
    report.lines.append(
        f"{said['lengths']} lengths, {said['distinct']} of them distinct: {said['tunings']} tunings for "
        f"{said['buckets']} buckets; answers by tier: {said['tiers']}"
    )
    for name in ("regret", "floor", "default"):
        one = said[name]
        report.lines.append(f"  {name:8} mean {one['mean']:.2%}, 95 % below {one['p95']:.2%}, worst {one['worst']:.2%}")
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
