"""Two builds with planted changes, compared: which changes are found, and how often one is seen that is not there.

    python benchmarks/compare.py [--quick] [--json] [--repeats 20] [--sittings 8] [--rounds 40] [--saved]

Each build has an implementation of `reduce` for each planted change: the sum of rows, computed a number of times that
is in one build that many percent more or less than in the other. A repeat is one `bench compare --live` of the two
builds over all of them, new processes in each sitting. `found_3` and `found_10` are the shares of planted changes of
that size that were reported with the right sign; `false_alarms` is the share of repeats in which the one that did not
change was reported. `found_1` has no goal. With `--saved` each repeat also saves a run of either build, one after the
other, and compares these by the anchor: `saved.found_3` and so on.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from math import log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from figures import Goal, Report, parser

from tunewright.bench.ab import compare_builds
from tunewright.bench.calls import OperatorCall
from tunewright.bench.compare import RunComparison, compare_runs
from tunewright.bench.results import BenchRun
from tunewright.bench.rounds import RoundOptions
from tunewright.bench.runner import BenchPlan, list_operators, run_benchmark
from tunewright.bench.worker import Build

GOALS = (
    Goal("found_10", ">=", 0.95),
    Goal("found_3", ">=", 0.95),
    Goal("false_alarms", "<=", 0.05),
)
PLANTED = (-10, -3, -1, 0, 1, 3, 10)
TIMES = 200
CALL = OperatorCall("reduce", {"M": 32, "N": 512})
SOURCE = """
import numpy as np
from tunewright.operators import Implementation, Support
from tunewright.operators.standard import REDUCE

TIMES = {times}


def summed(times):
    def run(x, out):
        for _ in range(times):
            np.add.reduce(x, axis=-1, out=out)

    return run


def implementations():
    return [Implementation(name, REDUCE, summed(times), support=Support()) for name, times in TIMES.items()]
"""


def planted(folder: Path, changes: Sequence[int]) -> tuple[Build, Build]:
    """Two builds, as folders with a package each."""
    made = []
    for name, share in (("before", 0), ("after", 1)):
        times = {f"by{change:+d}": round(TIMES * (1 + share * change / 100)) for change in changes}
        place = folder / name
        place.mkdir()
        (place / "planted.py").write_text(SOURCE.format(times=times))
        made.append(Build.from_path(str(place), ("planted:implementations",)))
    return made[0], made[1]


def ran(build: Build, plan: BenchPlan, names: Sequence[str]) -> BenchRun:
    """A run of one build, as `bench --save` keeps it."""
    own = BenchPlan(options=plan.options, repeats=plan.repeats, build=build)
    return run_benchmark(own, list_operators(build, own.limits), [CALL], names, lambda said: None)


def reported(found: RunComparison) -> dict[int, int]:
    """For each planted change: 1 if it was said to be slower, -1 if faster, else 0."""
    signs = {"slower": 1, "faster": -1}
    return {int(one.implementation.removeprefix("by")): signs.get(one.verdict, 0) for one in found.changes}


def shares(repeats: Sequence[dict[int, int]]) -> dict[str, Any]:
    """How often each size was found with its sign, and the one that is none."""
    made: dict[str, Any] = {}
    for size in (10, 3, 1):
        seen = [said[c] * c > 0 for said in repeats for c in said if abs(c) == size]
        wrong = [said[c] * c < 0 for said in repeats for c in said if abs(c) == size]
        if seen:
            made[f"found_{size}"] = round(sum(seen) / len(seen), 3)
            made[f"wrong_sign_{size}"] = sum(wrong)
    made["false_alarms"] = round(sum(said[0] != 0 for said in repeats) / len(repeats), 3)
    return made


def told(repeats: Sequence[dict[int, int]], label: str) -> list[str]:
    words = {change: sum(said[change] != 0 for said in repeats) for change in repeats[0]}
    return [f"{label}: reported of {len(repeats)} repeats: " + "  ".join(f"{c:+d} % {n}" for c, n in words.items())]


def main() -> int:
    made = parser(__doc__)
    made.add_argument("--repeats", type=int, default=None, help="whole comparisons (20; quick: 2)")
    made.add_argument("--sittings", type=int, default=None, help="of each (8; quick: 6)")
    made.add_argument("--rounds", type=int, default=40, help="of each sitting")
    made.add_argument("--saved", action="store_true", help="also by two saved runs and their anchor")
    given = made.parse_args()
    repeats, sittings = given.repeats or (2 if given.quick else 20), given.sittings or (6 if given.quick else 8)
    changes = (-10, 0, 3) if given.quick else PLANTED
    report, live, saved, errors = Report(), [], [], []
    plan = BenchPlan(options=RoundOptions(rounds=given.rounds), repeats=sittings)
    began = time.perf_counter()
    with TemporaryDirectory() as folder:
        builds = planted(Path(folder), changes)
        cells = [(CALL, f"by{change:+d}") for change in changes]
        for _ in range(repeats):
            found = compare_builds(plan, builds, cells, lambda said: None)
            live.append(reported(found))
            print(f"{len(live)} of {repeats}: {live[-1]}", file=sys.stderr)
            errors += [
                100 * (log(one.ratio) - log(1 + int(one.implementation.removeprefix("by")) / 100))
                for one in found.changes
            ]
            if given.saved:
                names = [name for _, name in cells]
                before, after = (ran(one, plan, names) for one in builds)
                saved.append(reported(compare_runs(before, after)))
    report.figures |= shares(live) | {"repeats": repeats, "sittings": sittings, "rounds": given.rounds}
    report.figures["typical_error_percent"] = round(sorted(map(abs, errors))[len(errors) // 2], 3)
    report.figures["worst_error_percent"] = round(max(map(abs, errors)), 3)
    report.lines += told(live, "live")
    if saved:
        report.figures["saved"] = shares(saved)
        report.lines += told(saved, "saved")
    report.figures["seconds_a_repeat"] = round((time.perf_counter() - began) / repeats, 1)
    report.figures["load"] = round(os.getloadavg()[0], 2)
    report.lines.append(
        f"a ratio is off by {report.figures['typical_error_percent']} % at the median, "
        f"{report.figures['worst_error_percent']} % at worst; {report.figures['seconds_a_repeat']} s a repeat; "
        f"load {report.figures['load']}"
    )
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
