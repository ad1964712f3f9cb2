"""Leave one kind out: choose the portfolio's settings for each kind of space on the others alone.

    python benchmarks/loko.py [--quick] [--json] [--spaces DIR] [--seeds 4] [--out DIR]

Kinds are the kernels of the recordings in DIR and those of the project's own CPU spaces, whose times are drawn from the
spread of each row. Every candidate setting is replayed on every space; its score on a kind is the mean of r25, r50,
r100 and r200 over the kind's spaces and seeds. For each kind, the candidate with the best mean over the other kinds is
written to `loko.json`, which `search.py --only loko` and `--only cpu` use; beside it the one that is best over all.
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
from search import LEFT_OUT, LOKO, OWN, SHARED, kind_of, say

from tunewright.replay.ledger import TraceLog
from tunewright.replay.registry import ReplayedStrategy
from tunewright.replay.runs import ReplayOptions, make_jobs
from tunewright.replay.scores import TraceScore
from tunewright.replay.tables import RecordingFile
from tunewright.replay.workers import collect_traces

MIDDLE = {"near": 1.5, "far": 3.0}
CANDIDATES: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "no trees": {"trees": False},
    "middle scales": MIDDLE,
    "surer": {"uncertainty_scale": 1.5},
    "slow counts less": {**MIDDLE, "reach": 1.0},
}
AT = (25, 50, 100, 200)
FIRST = 2000
"""The first seed: none that a table of results is made with."""


def scored(origins: Sequence[RecordingFile], seeds: int, ledger: TraceLog, workers: int) -> dict[str, dict[str, float]]:
    """The score of each candidate on each kind."""
    found: dict[str, dict[str, list[float]]] = {}
    kinds = {origin.name: kind_of(origin) for origin in origins}
    for name, settings in CANDIDATES.items():
        strategy, traces = [ReplayedStrategy("portfolio", settings)], []
        for noise in (False, True):
            some = [origin for origin in origins if (origin.path.parent == OWN) == noise]
            options = ReplayOptions(max(AT), noise=noise)
            jobs = make_jobs(some, strategy, range(FIRST, FIRST + seeds), options)
            traces += collect_traces(jobs, ledger, workers=workers) if jobs else []
        for trace in traces:
            ratios = TraceScore.of(trace, AT).ratios
            found.setdefault(name, {}).setdefault(kinds[trace.table], []).append(
                float(np.mean([ratios[k] for k in AT]))
            )
        say(f"{name}: " + ", ".join(f"{kind} {np.mean(s):.4f}" for kind, s in sorted(found[name].items())))
    return {name: {kind: float(np.mean(s)) for kind, s in by.items()} for name, by in found.items()}


def chosen(scores: dict[str, dict[str, float]], without: str | None) -> str:
    """The candidate that is best on average over all kinds but one."""
    kinds = [kind for kind in next(iter(scores.values())) if kind != without]
    return max(scores, key=lambda name: np.mean([scores[name][kind] for kind in kinds]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay, choose, write."""
    takes = parser(__doc__)
    takes.add_argument("--spaces", type=Path, default=SHARED / "spaces", metavar="DIR", help="recordings")
    takes.add_argument("--seeds", type=int, help="4, or 1 if quick")
    takes.add_argument("--out", type=Path, metavar="DIR", help="keep finished runs here, and do not repeat them")
    takes.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = takes.parse_args(arguments)
    report = Report()
    with tempfile.TemporaryDirectory() as made, TraceLog(given.out or Path(made)) as ledger:
        paths = [path for path in sorted(given.spaces.glob("*.parquet")) if path.stem not in LEFT_OUT]
        paths += sorted(OWN.glob("*.parquet"))
        origins = [RecordingFile(path) for path in paths]
        if given.quick:
            origins = list({kind_of(origin): origin for origin in origins}.values())[:2]
        scores = scored(origins, given.seeds or (1 if given.quick else 4), ledger, given.workers)
    kinds = sorted(next(iter(scores.values())))
    picks = {kind: chosen(scores, kind if len(kinds) > 1 else None) for kind in kinds}
    report.figures |= {"scores": scores, "chosen": picks, "best_over_all": chosen(scores, None)}
    report.lines += [f"{kind}: {picks[kind]}, chosen without it" for kind in kinds]
    report.lines.append(f"over all: {chosen(scores, None)}")
    if not given.quick:
        LOKO.write_text(json.dumps({kind: CANDIDATES[picks[kind]] for kind in kinds}, indent=1) + "\n")
    return report.finish((), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
