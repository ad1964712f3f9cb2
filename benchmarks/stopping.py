"""Stopping: when the default rule ends a search, what it gave away, and how good the estimate of regret is.

    python benchmarks/stopping.py [--quick] [--json] [--spaces DIR] [--seeds 10] [--worth 0.01]

Each run is the portfolio on a recorded space, to 200 evaluations. Noted are the evaluation at which the rule would
have ended it, the regret then and at the end, and the estimate of regret at both. Beside it the rule people use: stop
after 50 evaluations without a better config.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from figures import Report, parser
from search import LEFT_OUT, SHARED, made_up

from tunewright.engine.stopping import StoppingRule
from tunewright.replay.tables import RecordingFile
from tunewright.strategies.portfolio import Portfolio

BUDGET = 200
STALE = 50


def run(job: tuple[RecordingFile, int, float]) -> list[dict[str, Any]]:
    """Some seeds on one space."""
    origin, seeds, worth = job
    table = origin.load()
    found = []
    for seed in range(seeds):
        search = Portfolio(table.space, np.random.default_rng(seed))
        stopping, best, since, ends = StoppingRule(search, worth), np.inf, 0, {}
        for number in range(1, BUDGET + 1):
            (config,) = search.ask(1)
            row = table.rows[config]
            search.tell([table.trials[row]])
            better = bool(table.seconds[row] < best)
            best, since = (float(table.seconds[row]), 0) if better else (best, since + 1)
            regret = 1 - table.optimum / best
            if "rule" not in ends and stopping.should_stop(number):
                ends["rule"] = (number, regret, stopping.forecast.regret if stopping.forecast else np.nan)
            if "stale" not in ends and since >= STALE:
                ends["stale"] = (number, regret, np.nan)
        ends["budget"] = (BUDGET, regret, stopping.forecast.regret if stopping.forecast else np.nan)
        whole = ends["budget"]
        found.append({"space": origin.name, "rule": whole, "stale": whole} | ends)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay, and compare the rules."""
    takes = parser(__doc__)
    takes.add_argument("--spaces", type=Path, default=SHARED / "spaces", metavar="DIR", help="recordings")
    takes.add_argument("--seeds", type=int, help="10, or 1 if quick")
    takes.add_argument("--worth", type=float, default=0.01)
    takes.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = takes.parse_args(arguments)
    report = Report()
    with tempfile.TemporaryDirectory() as made:
        paths = [path for path in sorted(given.spaces.glob("*.parquet")) if path.stem not in LEFT_OUT]
        origins = [RecordingFile(path) for path in paths] or made_up(Path(made))
        origins = origins[:2] if given.quick else origins
        seeds = given.seeds or (1 if given.quick else 10)
        with get_context("spawn").Pool(given.workers) as pool:
            jobs = [(origin, seeds, given.worth) for origin in origins]
            rows = [row for part in pool.imap_unordered(run, jobs, chunksize=1) for row in part]
    for name in ("rule", "stale", "budget"):
        ends = np.array([row[name] for row in rows], dtype=float)
        figures = {
            "evaluations": float(np.median(ends[:, 0])),
            "evaluations_mean": float(ends[:, 0].mean()),
            "regret": float(ends[:, 1].mean()),
            "within1": float((ends[:, 1] < 0.01).mean()),
        }
        if name != "stale":
            told = ~np.isnan(ends[:, 2])
            figures |= {
                "estimated": float(ends[told, 2].mean()),
                "too_hopeful": float((ends[told, 2] < ends[told, 1] / 2).mean()),
            }
        report.figures[name] = {key: round(value, 4) for key, value in figures.items()}
        report.lines.append(f"{name:<8}" + "  ".join(f"{key} {value:.3g}" for key, value in figures.items()))
    return report.finish((), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
