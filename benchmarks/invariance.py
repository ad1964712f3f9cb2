"""Rows whose bits do not depend on how many rows there are: what it costs, and whether it holds.

    python benchmarks/invariance.py [--quick] [--json]

A matrix product in C, whose K is cut into blocks of a length that is a knob, is tuned with `invariant=["M"]`. Then it
is called at 10,000 lengths (`--quick`: 400) in frozen mode: all its rows must be those of the longest call, byte for
byte. Beside it the same kernel, tuned freely.

- `lengths`, `row_0_differs`, `rows_differ`: lengths that were called, and at how many of them the first row, or any
  row, had other bytes. `free_row_0_differs`: of the kernel that is tuned freely.
- `classes_note`, `price`: what the decisions say, and by which share the class is slower than the free choice: the mean
  over buckets, raced against it in pairs.
- `planted_found`: whether a kernel that splits K only where there are few rows is refused, and its knob is named.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import space_kinds as kinds
from figures import Goal, Report, parser

import tunewright as tw
from tunewright.errors import NotInvariant
from tunewright.measure.race import RaceOptions

K, N, MOST = 512, 16, 10_000
BUCKETS = (16, 128, 1024, MOST)
RACE = RaceOptions(rounds=60, seconds=3.0)
GOALS = (Goal("row_0_differs", "==", 0), Goal("rows_differ", "==", 0), Goal("planted_found", "==", True))

BLOCKED = kinds.space(
    {
        "VW": [8, 16],
        "MR": [1, 4, 12],
        "NR": [1],
        "KB": [32, 128, 400],
        "NB": [64],
        "PACK": [0, 1, 2],
        "UNROLL": [1],
        "ORDER": [0, 1],
        "PADDED": [1],
    }
)
SPLIT = kinds.space({"SPLIT": [2, 4, 8], "UNROLL": [1, 4]})
DECLARED: dict[str, Any] = {"reference": np.matmul, "buckets": {"M": list(BUCKETS)}}


@tw.tune(BLOCKED, backend=kinds.backend("gemm", sizes="arguments"), invariant=["M"], **DECLARED)
def gemm(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...


@tw.tune(BLOCKED, backend=kinds.backend("gemm", sizes="arguments"), name="gemm", **DECLARED)
def free_gemm(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...


@tw.tune(
    SPLIT,
    backend=kinds.backend("gemm_split", sizes="arguments"),
    reference=np.matmul,
    invariant=["M"],
    buckets={"M": [16, 128]},
)
def gemm_split(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...


def arguments(m: int) -> list[Any]:
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((m, K), dtype=np.float32), rng.standard_normal((K, N), dtype=np.float32)
    return [a, b, np.empty((m, N), np.float32)]


def differing(kernel: tw.Tuned, lengths: Sequence[int]) -> tuple[int, int]:
    """At how many lengths the first row, and any row, has other bytes than in the longest call."""
    a, b, c = arguments(MOST)
    kernel(a, b, c)
    first = rows = 0
    for m in lengths:
        out = np.empty((m, N), np.float32)
        kernel(a[:m], b, out)
        first += out[0].tobytes() != c[0].tobytes()
        rows += out.tobytes() != c[:m].tobytes()
    return first, rows


def price() -> dict[str, Any]:
    """What the class costs beyond the free choice, in each bucket."""
    shares = {}
    for m in BUCKETS:
        args = arguments(m)
        chosen, free = gemm.decide(*args), free_gemm.decide(*args)
        ratio = 1.0
        if chosen.config != free.config:
            race = gemm.attempt(gemm.cases_like(args)).race([chosen.config, free.config], RACE, (0, 1))
            ratio = race.ratio(0, 1)[0] if race is not None else float("nan")
        shares[str(m)] = round(ratio - 1, 4)
    return {"price_by_bucket": shares, "price": round(float(np.mean(list(shares.values()))), 4)}


def planted() -> dict[str, Any]:
    """Whether the kernel without a class is refused, and what it is told."""
    try:
        gemm_split.tune(*arguments(16))
    except NotInvariant as refusal:
        return {"planted_found": "SPLIT" in str(refusal), "planted_says": str(refusal)}
    return {"planted_found": False, "planted_says": ""}


def measured(folder: Path, budget: int, lengths: Sequence[int]) -> dict[str, Any]:
    store = str(folder / "decisions.sqlite")
    session = tw.Session(mode="tune", store=store, trials=budget)
    for kernel in (gemm, free_gemm, gemm_split):
        kernel.using(session)
    decision = gemm.tune(*arguments(BUCKETS[0]))
    assert decision.evidence is not None
    figures = {"classes_note": next(note for note in decision.evidence.notes if "do not depend" in note)}
    figures |= price() | planted()
    for kernel in (gemm, free_gemm):
        kernel.using(tw.Session(mode="frozen", store=store))
    first, rows = differing(gemm, lengths)
    free_first, _ = differing(free_gemm, lengths)
    configs = sorted({str(gemm.decide(*arguments(m)).config) for m in BUCKETS})
    return figures | {
        "lengths": len(lengths),
        "row_0_differs": first,
        "rows_differ": rows,
        "free_row_0_differs": free_first,
        "configs": configs,
    }


def main(given: Sequence[str] | None = None) -> int:
    """Tune, call, compare, report."""
    options = parser(__doc__).parse_args(given)
    lengths = [int(m) for m in np.random.default_rng(3).permutation(np.arange(1, MOST + 1))]
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        report.figures = measured(Path(folder), 6 if options.quick else 40, lengths[: 400 if options.quick else None])
    said = report.figures
    report.lines = [
        f"{said['lengths']:,} lengths: the first row differs at {said['row_0_differs']}, any row at "
        f"{said['rows_differ']}; tuned freely, the first row differs at {said['free_row_0_differs']}",
        f"{said['classes_note']}; {said['price']:.1%} slower than the free choice ({said['price_by_bucket']})",
        f"planted: {said['planted_says']}",
    ]
    if said["rows_differ"] or not said["planted_found"]:
        report.wrong.append("rows depend on M, or the planted kernel was not found")
    return report.finish(GOALS, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
