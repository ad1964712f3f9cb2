"""Whether a budget in seconds is kept, whatever the length of the kernel.

    python benchmarks/budgets.py [--quick] [--json]

Kernels that take from a microsecond to five seconds are tuned at budgets of 10 and 30 seconds. Each has a default and
39 more configs, of which every other takes 1.3 times as long; expected results come from the default config. Seconds
are counted from the call to its return: worker processes, verification, trials and the race of the finalists. One run
of the default is always allowed, so it is subtracted; the overrun is the rest over the budget.

Without --quick, each is tuned three times, and a slow reference and a slow compiler are added.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from figures import Goal, Report, parser
from numpy.typing import NDArray

import tunewright as tw

LENGTHS = {"1us": 1e-6, "1ms": 1e-3, "50ms": 0.05, "1s": 1.0, "5s": 5.0}
BUDGETS = (10, 30)
SPACE = tw.Space(tw.Knob("way", list(range(40))))
GOALS = (Goal("worst_overrun", "<=", 1.10),)


def spend(seconds: float) -> None:
    """Computes for so long."""
    numbers, ends = np.ones(64), time.perf_counter() + seconds
    while time.perf_counter() < ends:
        np.sqrt(numbers, out=numbers)


def make(length: str, budget: int, **options: Any) -> Any:
    @tw.tune(SPACE, budget=f"{budget}s", name=f"kernel_{length}_{budget}", **options)
    def kernel(a: tw.In("N"), *, way: int = 0) -> NDArray[Any]:  # type: ignore[valid-type]
        if LENGTHS[length] > 1e-5:
            spend(LENGTHS[length] * (1.3 if way % 2 else 1.0))
        return a * 2

    return kernel


def slow_reference(a: NDArray[Any]) -> NDArray[Any]:
    spend(2.0)
    return a * 2


KERNELS = {(length, budget): make(length, budget) for length in LENGTHS for budget in BUDGETS}
WITH_SLOW_REFERENCE = make("1ms", 10, reference=slow_reference)


def tune(kernel: Any, budget: int, default_seconds: float) -> dict[str, Any]:
    """Tunes from an empty cache, and says how long that took and what came of it."""
    with tempfile.TemporaryDirectory() as cache:
        kernel.using(tw.Session(store="memory:", cache=cache, min_expected_gain=0.0))
        began = time.perf_counter()
        decision = kernel.decide(np.ones(64))
        seconds = time.perf_counter() - began
    evidence = decision.evidence
    return {
        "seconds": round(seconds, 2),
        "overrun": round((seconds - default_seconds) / budget, 3),
        "trials": evidence.trials,
        "failures": evidence.failures,
        "interval": [round(evidence.low / evidence.seconds, 3), round(evidence.high / evidence.seconds, 3)],
        "notes": list(evidence.notes),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune each, report the worst."""
    given = parser(__doc__).parse_args(arguments)
    report, rows = Report(), []
    runs = [(f"{length}.{budget}s", kernel, budget, LENGTHS[length]) for (length, budget), kernel in KERNELS.items()]
    if not given.quick:
        runs = [*runs, ("slow_reference.10s", WITH_SLOW_REFERENCE, 10, LENGTHS["1ms"])] * 3
    for name, kernel, budget, seconds in runs:
        row = tune(kernel, budget, seconds)
        print(f"{name}: {row['seconds']} s, {row['trials']} trials", file=sys.stderr, flush=True)
        rows.append({"name": name, **row})
        report.lines.append(
            f"{name:<20} {row['seconds']:6.1f} s  overrun {row['overrun']:.2f}  {row['trials']:4d} trials  "
            f"known within {row['interval'][0]:.2f} to {row['interval'][1]:.2f}"
        )
    report.figures |= {
        "worst_overrun": max(row["overrun"] for row in rows),
        "failures": sum(row["failures"] for row in rows),
        "rows": rows,
    }
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
