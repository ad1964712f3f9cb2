"""Leave one kernel out: choose the portfolio's settings for each kernel on the spaces of the others alone.

    python benchmarks/loko.py [--quick] [--json] [--spaces DIR] [--seeds 8] [--out DIR]

Every candidate setting is replayed on every space; its score on a kernel is the mean of r25, r50 and r100 over that
kernel's spaces and seeds. For each kernel, the candidate with the best mean over the other kernels is written to
`loko.json`, which `search.py --only loko` uses; beside it the candidate that is best over all of them.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from figures import Report, parser
from search import LEFT_OUT, LOKO, SHARED, kernel_of, made_up, say

from tunewright.replay.ledger import TraceLog
from tunewright.replay.registry import ReplayedStrategy
from tunewright.replay.runs import ReplayOptions, make_jobs
from tunewright.replay.scores import TraceScore
from tunewright.replay.tables import RecordingFile
from tunewright.replay.workers import collect_traces

MIDDLE = {"near": 1.5, "far": 3.0}
CANDIDATES: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "middle scales": MIDDLE,
    "as sure as the model": {**MIDDLE, "uncertainty_scale": 1.0},
    "less sure": {**MIDDLE, "uncertainty_scale": 1.5},
    "far less sure": {**MIDDLE, "uncertainty_scale": 3.0},
    "no slope": {**MIDDLE, "slope": 0.0},
    "gentler": {**MIDDLE, "slope": 0.3},
    "longer scales": {"near": 2.0, "far": 4.0},
    "slow counts less": {**MIDDLE, "reach": 1.0},
    "as it was": {"uncertainty_scale": 1.0, "slope": 0.3, "reach": 1.0},
}
AT = (25, 50, 100)
FIRST = 1000
"""The first seed: none that a table of results is made with."""


def scored(origins: Sequence[RecordingFile], seeds: int, ledger: TraceLog, workers: int) -> dict[str, dict[str, float]]:
    """The score of each candidate on each kernel."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, settings in CANDIDATES.items():
        wanted = make_jobs(
            origins, [ReplayedStrategy("portfolio", settings)], range(FIRST, FIRST + seeds), ReplayOptions(max(AT))
        )
        for trace in collect_traces(wanted, ledger, workers=workers):
            ratios = TraceScore.of(trace, AT).ratios
            found.setdefault(name, {}).setdefault(trace.kernel, []).append(float(np.mean([ratios[k] for k in AT])))
        say(f"{name}: " + ", ".join(f"{kernel} {np.mean(s):.4f}" for kernel, s in sorted(found[name].items())))
    return {name: {kernel: float(np.mean(s)) for kernel, s in by.items()} for name, by in found.items()}


def chosen(scores: dict[str, dict[str, float]], without: str | None) -> str:
    """The candidate that is best on average over all kernels but one."""
    kernels = [kernel for kernel in next(iter(scores.values())) if kernel != without]
    return max(scores, key=lambda name: np.mean([scores[name][kernel] for kernel in kernels]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay, choose, write."""
    takes = parser(__doc__)
    takes.add_argument("--spaces", type=Path, default=SHARED / "spaces", metavar="DIR", help="recordings")
    takes.add_argument("--seeds", type=int, help="8, or 1 if quick")
    takes.add_argument("--out", type=Path, metavar="DIR", help="keep finished runs here, and do not repeat them")
    takes.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = takes.parse_args(arguments)
    report = Report()
    with tempfile.TemporaryDirectory() as made, TraceLog(given.out or Path(made)) as ledger:
        paths = [path for path in sorted(given.spaces.glob("*.parquet")) if path.stem not in LEFT_OUT]
        origins = [RecordingFile(path) for path in paths] or made_up(Path(made))
        if given.quick:
            origins = list({kernel_of(origin): origin for origin in origins}.values())[:2]
        scores = scored(origins, given.seeds or (1 if given.quick else 8), ledger, given.workers)
    kernels = sorted(next(iter(scores.values())))
    picks = {kernel: chosen(scores, kernel if len(kernels) > 1 else None) for kernel in kernels}
    report.figures |= {"scores": scores, "chosen": picks, "best_over_all": chosen(scores, None)}
    report.lines += [f"{kernel}: {picks[kernel]}, chosen without it" for kernel in kernels]
    report.lines.append(f"over all: {chosen(scores, None)}")
    if not given.quick:
        LOKO.write_text(json.dumps({kernel: CANDIDATES[picks[kernel]] for kernel in kernels}, indent=1) + "\n")
    return report.finish((), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
