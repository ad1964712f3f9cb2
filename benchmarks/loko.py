"""Leave one kind out: choose the portfolio's settings for each kind of space on the others alone.

    python benchmarks/loko.py [--quick] [--json] [--spaces DIR] [--seeds 4] [--out DIR]

Kinds are the kernels of the recordings in DIR and those of the project's own CPU spaces, whose times are drawn from the
spread of each row. Every candidate setting is replayed on every space; its score on a kind is the mean of r25, r50,
r100 and r200 over the kind's spaces and seeds. For each kind, the candidate that is clearly ahead of the shipped
settings on the other kinds is written to `loko.json`, which `search.py --only loko` and `--only cpu` use: its mean lead
is more than two standard errors. If none is, the shipped settings are taken: the best of five that differ by nothing
but noise is the luckiest, not the best.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from math import inf
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

SHIPPED = "as shipped"
CLEAR = 2.0
"""Standard errors by which another candidate must be ahead."""

MIDDLE = {"near": 1.5, "far": 3.0}
CANDIDATES: dict[str, dict[str, Any]] = {
    SHIPPED: {},
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


def leads(scores: dict[str, dict[str, float]], name: str, without: str | None) -> tuple[float, float]:
    """How far a candidate is ahead of the shipped settings over all kinds but one: the mean, and its standard error."""
    ahead = [scores[name][kind] - score for kind, score in scores[SHIPPED].items() if kind != without]
    return float(np.mean(ahead)), float(np.std(ahead, ddof=1) / np.sqrt(len(ahead))) if len(ahead) > 1 else inf


def chosen(scores: dict[str, dict[str, float]], without: str | None) -> str:
    """The candidate that is farthest ahead on all kinds but one, of those that are clearly so; else what is shipped."""
    found = {name: leads(scores, name, without) for name in scores}
    ahead = [name for name, (lead, error) in found.items() if lead > CLEAR * error]
    return max(ahead, key=lambda name: found[name], default=SHIPPED)


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
    said = {name: leads(scores, name, None) for name in scores if name != SHIPPED}
    report.figures["leads"] = {name: {"mean": round(lead, 5), "error": round(e, 5)} for name, (lead, e) in said.items()}
    report.lines += [f"{name}: {lead:+.4f} ({error:.4f}) against the shipped" for name, (lead, error) in said.items()]
    report.lines += [f"{kind}: {picks[kind]}, chosen without it" for kind in kinds]
    report.lines.append(f"over all: {chosen(scores, None)}")
    if not given.quick:
        LOKO.write_text(json.dumps({kind: CANDIDATES[picks[kind]] for kind in kinds}, indent=1) + "\n")
    return report.finish((), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
