"""Does the gate find planted slow-downs of commands, and raise no false alarm?

    python benchmarks/gate.py [--quick] [--json] [--repeats 40] [--seconds 60] [--shares 0,0.01,0.03,0.1]

A program in C that computes for about 0.1 s is raced against one that computes 0, 1, 3 or 10 % longer, as
`tunewright race A B --fail-if-slower 3%` does it. Each share is repeated with another seed, the shares in turn, so that
all meet the same states of the machine.

- `slower`, `not_slower`, `unknown`: outcomes of each share. `seconds`: the median time to an outcome, and the longest.
- `false_alarms`: outcomes `slower` where nothing was planted, or less than half of the limit.
- `found_3_of_40`, `found_10_of_40`: planted slow-downs that were found, scaled to 40 repeats.
- `load`: the highest load average that was seen. The goal for 3 % is for a load below 3.

`--quick`: four repeats.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from figures import Goal, Report, parser

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


def summarize(results: list[GateResult]) -> dict[str, Any]:
    """Figures of one share."""
    elapsed = [result.elapsed for result in results]
    counts = {outcome.replace(" ", "_"): sum(r.outcome == outcome for r in results) for outcome in GateOutcome}
    return {
        **counts,
        "seconds": round(median(elapsed), 2),
        "longest": round(max(elapsed), 2),
        "ratio": round(median(result.ratio for result in results), 4),
        "pairs": round(median(result.pairs for result in results)),
        "clock": results[0].clock,
    }


def main() -> int:
    given = parser(__doc__)
    given.add_argument("--repeats", type=int, help="races of each share (40; quick: 4)")
    given.add_argument("--seconds", type=float, default=60.0, help="limit of a race")
    given.add_argument("--shares", default="0,0.01,0.03,0.1", help="planted slow-downs")
    options = given.parse_args()
    repeats = options.repeats or (4 if options.quick else 40)
    shares = [float(text) for text in options.shares.split(",")]
    results: dict[float, list[GateResult]] = {share: [] for share in shares}
    report, load = Report(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        program = compile_program(Path(folder))
        steps = calibrate(program)
        for seed in range(repeats):
            for share in shares:
                result = race(program, steps, share, GateOptions(LIMIT, options.seconds, seed))
                results[share].append(result)
                load = max(load, os.getloadavg()[0])
                print(f"{share:.0%} #{seed}: {result.sentence()} in {result.elapsed:.1f} s", file=sys.stderr)
    figures = {f"{share:g}": summarize(own) for share, own in results.items()}
    small = [result for share in shares if share < LIMIT / 2 for result in results[share]]
    report.figures = {
        "shares": figures,
        "repeats": repeats,
        "limit": LIMIT,
        "load": load,
        "false_alarms": sum(result.outcome is GateOutcome.SLOWER for result in small),
        **{f"found_{100 * share:.0f}_of_40": 40 * figures[f"{share:g}"]["slower"] / repeats
           for share in shares if share >= LIMIT},
    }  # fmt: skip
    report.lines = [f"{share:>5}  {own}" for share, own in figures.items()] + [f"load {load:.1f}"]
    return report.finish(GOALS, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
