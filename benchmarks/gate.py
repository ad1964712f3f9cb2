"""Does the gate find planted slow-downs of commands, and raise no false alarm?

    python benchmarks/gate.py [--quick] [--json] [--repeats 40] [--seconds 60] [--shares 0,0.01,0.03] [--resume FILE]

A program in C that computes for about 0.1 s is raced against one that computes 0, 1, 3 or 10 % longer, as
`tunewright race A B --fail-if-slower 3%` does it. Each share is repeated with another seed, the shares in turn, so that
all meet the same states of the machine.

- `slower`, `not_slower`, `unknown`: outcomes of each share. `seconds`: the median time to an outcome, and the longest.
- `false_alarms`: outcomes `slower` where nothing was planted, or less than half of the limit.
- `found_3_of_40`, `found_10_of_40`: planted slow-downs that were found, scaled to 40 repeats.
- `load`: the highest load average that was seen. The goal for 3 % is for a load below 3.

`--quick`: four repeats. `--resume FILE` keeps each outcome in a file, and skips those that are there.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from figures import Goal, Report, parser
from kept_rows import KeptRows, say_progress

from tunewright.gate import GateOptions, GateOutcome, GateResult, open_sides, parse_side, run_gate

LIMIT = 0.03
TARGET_SECONDS = 0.1
SOURCE = """
#include <stdlib.h>
int main(int count, char **words) {
    volatile double x = 1.0;
    for (long i = 0, n = atol(words[1]); i < n; i++) x = x * 1.0000001 + 1e-9;
    return 0;
}
"""
GOALS = (
    Goal("false_alarms", "==", 0),
    Goal("found_3_of_40", ">=", 36),
    Goal("found_10_of_40", "==", 40),
)


def compile_program(folder: Path) -> Path:
    """The program that computes for as long as it is told."""
    source, program = folder / "spin.c", folder / "spin"
    source.write_text(SOURCE)
    subprocess.run(["cc", "-O1", str(source), "-o", str(program)], check=True)
    return program


def calibrate(program: Path) -> int:
    """How many steps take about 0.1 s here; the least of some runs, since others may disturb."""
    steps = 2_000_000
    seconds = []
    for _ in range(7):
        began = time.perf_counter()
        subprocess.run([str(program), str(steps)], check=True)
        seconds.append(time.perf_counter() - began)
    return round(steps * TARGET_SECONDS / min(seconds))


def race(program: Path, steps: int, share: float, options: GateOptions) -> GateResult:
    """The verdict on a program that computes longer by this share."""
    sides = [parse_side(f"{program} {count}", program.parent) for count in (steps, round(steps * (1 + share)))]
    with open_sides(sides[0], sides[1]) as contest:
        return run_gate(contest, options)


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of one share."""
    counts = {outcome.replace(" ", "_"): sum(row["outcome"] == outcome for row in rows) for outcome in GateOutcome}
    return {
        **counts,
        "seconds": round(median(row["elapsed"] for row in rows), 2),
        "longest": round(max(row["elapsed"] for row in rows), 2),
        "ratio": round(median(row["ratio"] for row in rows), 4),
        "pairs": round(median(row["pairs"] for row in rows)),
        "clock": rows[0]["clock"],
    }


def run_all(shares: list[float], repeats: int, seconds: float, kept: KeptRows) -> None:
    """Race what is not known yet, the shares in turn."""
    left = [(seed, share) for seed in range(repeats) for share in shares if (f"{share:g}", seed) not in kept]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        program = compile_program(Path(folder))
        steps = calibrate(program)
        for done, (seed, share) in enumerate(left, 1):
            result = race(program, steps, share, GateOptions(LIMIT, seconds, seed))
            known = {name: getattr(result, name) for name in ("outcome", "elapsed", "ratio", "pairs", "clock", "load")}
            kept.add(f"{share:g}", seed, **known)
            line = f"{share:.0%} #{seed}: {result.sentence()} in {result.elapsed:.1f} s, load {result.load:.1f}"
            say_progress(line, began, done, len(left))


def main() -> int:
    given = parser(__doc__)
    given.add_argument("--repeats", type=int, help="races of each share (40; quick: 4)")
    given.add_argument("--seconds", type=float, default=60.0, help="limit of a race")
    given.add_argument("--shares", default="0,0.01,0.03,0.1", help="planted slow-downs")
    given.add_argument("--resume", type=Path, metavar="FILE", help="keep outcomes in this file, and continue from it")
    options = given.parse_args()
    repeats = options.repeats or (4 if options.quick else 40)
    shares, kept = [float(text) for text in options.shares.split(",")], KeptRows(options.resume)
    run_all(shares, repeats, options.seconds, kept)
    rows = {share: list(kept.of(f"{share:g}", repeats)) for share in shares}
    figures = {f"{share:g}": summarize(own) for share, own in rows.items()}
    small = [row for share in shares if share < LIMIT / 2 for row in rows[share]]
    every = [row for own in rows.values() for row in own]
    load, report = max(row["load"] for row in every), Report()
    report.figures = {
        "shares": figures,
        "repeats": repeats,
        "limit": LIMIT,
        "load": load,
        "minutes": round(sum(row["elapsed"] for row in every) / 60, 1),
        **({"false_alarms": sum(row["outcome"] == GateOutcome.SLOWER for row in small)} if small else {}),
        **{f"found_{100 * share:.0f}_of_40": 40 * figures[f"{share:g}"]["slower"] / repeats
           for share in shares if share >= LIMIT},
    }  # fmt: skip
    report.lines = [f"{share:>5}  {own}" for share, own in figures.items()] + [f"load {load:.1f}"]
    return report.finish([goal for goal in GOALS if goal.figure in report.figures], as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
