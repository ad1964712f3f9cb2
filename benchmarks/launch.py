"""What a tuned kernel costs its callers: a cached launch, beside stock Triton's, and `import tunewright`.

    python benchmarks/launch.py [--quick] [--json]

- overhead: a call of a tuned Python no-op, its decision stored, with three 512x512 float32 arrays and three ints,
  less the same function called directly with its knob set. Once with annotated parameters, once without.
- Triton's overhead: the same arguments through `triton.autotune`, less the JIT's launch with the config spelled out.
  Rung 2: a fake driver launches nothing, so this is the cost of its Python alone; no GPU is involved. Its key
  look-up is also shown apart, as what the autotuner does before it hands over to the JIT.
- import: CPU time of a fresh interpreter that imports numpy, msgspec and tunewright, less one without the last;
  bytecode is compiled beforehand, as it is for an installed package.

All launches are timed in turn, block by block, in CPU time; a figure is the median of differences between
neighbouring blocks, its spread beside it; "quietest" is the difference between the fastest block of each. Needs the
dependency group `peers`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fake_triton
import numpy as np
from figures import Goal, Paired, Report, children_cpu_seconds, parser

import tunewright as tw

SIZE = 512
SPACE = tw.Space(tw.Knob("tile", [16, 32]))
GOALS = (
    Goal("overhead_us", "<=", 2),
    Goal("ratio", ">=", 5),
    Goal("import_ms", "<=", 60),
    Goal("imports_clean", "==", True),
)
RUNG = "fake driver (rung 2): only Python launch cost, no GPU"
WITHOUT = "import numpy, msgspec"
WITH = f"{WITHOUT}; import tunewright"
LATE = ("click", "rich", "sqlite3", "tunewright.stores.sqlite", "tunewright.cli")
OPTIONAL = ("torch", "triton", "matplotlib", "plotly", "pyarrow", "kernel_tuner")

Call = Callable[..., Any]


def annotated(  # noqa: PLR0913 - three arrays, three ints, a knob
    a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.In("M", "N"), m: int, n: int, k: int, *, tile: int
) -> None: ...


def unannotated(a, b, c, m, n, k, *, tile): ...  # noqa: PLR0913 - the same


@dataclass(frozen=True)
class Pair:
    """Two ways to make the same call; what the first costs beyond the second is the overhead."""

    label: str
    tuned: Call
    direct: Call
    args: tuple[Any, ...]


def our_pair(label: str, function: Call, cache: Path, report: Report) -> Pair:
    """Tune `function`, then hold it as a later process would: strict, its decision read from the store."""
    args = (*(np.ones((SIZE, SIZE), dtype=np.float32) for _ in range(3)), SIZE, SIZE, SIZE)
    tuning = tw.Session(mode="tune", cache=str(cache), pool="serial", trials=2)
    decision = tw.tune(SPACE, session=tuning)(function).tune(*args)
    serving = tw.Session(mode="strict", cache=str(cache))
    kernel = tw.tune(SPACE, session=serving)(function)
    kernel(*args)
    kernel(*args)
    seen = dict(serving.counts)
    report.check(seen == {"exact": 1}, f"{label}: two launches of a decided kernel should ask the store once: {seen}")
    return Pair(label, kernel, partial(function, **decision.config), args)


def triton_pairs(cache: Path) -> list[Pair]:
    """Triton's whole launch, and its look-up alone."""
    made = fake_triton.launches(SIZE, str(cache))
    return [
        Pair("triton", made.tuned, made.direct, made.args),
        Pair("triton_lookup", made.looked_up, made.nothing, made.args),
    ]


def per_call_us(call: Call, args: tuple[Any, ...], calls: int) -> float:
    """CPU microseconds of one call among many."""
    a, b, c, m, n, k = args
    start = time.process_time_ns()
    for _ in repeat(None, calls):
        call(a, b, c, m, n, k)
    return (time.process_time_ns() - start) / calls / 1e3


def time_pairs(pairs: Sequence[Pair], *, blocks: int, calls: int = 500) -> dict[str, Paired]:
    """Blocks of every way in turn; which of a pair goes first alternates. One more block, the first, is dropped."""
    times: dict[str, list[tuple[float, float]]] = {pair.label: [] for pair in pairs}
    for block in range(blocks + 1):
        for pair in pairs:
            both = (pair.tuned, pair.direct)
            took = {call: per_call_us(call, pair.args, calls) for call in (both if block % 2 else reversed(both))}
            times[pair.label].append((took[pair.tuned], took[pair.direct]))
    return {label: Paired.of(seen[1:]) for label, seen in times.items()}


def measure_launches(report: Report, *, quick: bool) -> None:
    """The overhead of every pair, and how ours compares with Triton's."""
    with TemporaryDirectory() as folder:
        ours, theirs = Path(folder, "tunewright"), Path(folder, "triton")
        pairs = [our_pair(function.__name__, function, ours, report) for function in (annotated, unannotated)]
        costs = time_pairs([*pairs, *triton_pairs(theirs)], blocks=30 if quick else 120)
    overhead = {label: cost.extra.median for label, cost in costs.items()}
    ratio = overhead["triton"] / overhead["annotated"]
    report.figures |= {
        "overhead_us": round(overhead["annotated"], 3),
        "unannotated_overhead_us": round(overhead["unannotated"], 3),
        "triton_overhead_us": round(overhead["triton"], 3),
        "triton_lookup_us": round(overhead["triton_lookup"], 3),
        "ratio": round(ratio, 2),
        "triton_rung": RUNG,
        "quietest_us": {label: round(cost.quietest, 3) for label, cost in costs.items()},
        "through_tuner_us": {label: cost.dearer.plain() for label, cost in costs.items()},
        "direct_us": {label: cost.cheaper.plain() for label, cost in costs.items()},
    }
    report.lines.append("cached launch, CPU time per call: through the tuner, less direct")
    for label, cost in costs.items():
        both = f"{cost.dearer.median:6.2f} - {cost.cheaper.median:5.2f}"
        report.lines.append(f"  {label:<14}{both}: {cost.extra.text('us', 2)}, quietest {cost.quietest:.2f}")
    report.lines.append(f"  Triton's overhead is {ratio:.1f} times ours; {RUNG}")


def run_python(code: str, bytecode: Path) -> tuple[float, str]:
    """CPU milliseconds of a fresh interpreter that runs `code`, and what it printed; compiled modules are kept."""
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(bytecode), "PYTHONDONTWRITEBYTECODE": ""}
    start = children_cpu_seconds()
    ran = subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return (children_cpu_seconds() - start) * 1e3, ran.stdout


def measure_import(report: Report, *, quick: bool) -> None:
    """What `import tunewright` adds, and whether it loads what it should not. The first pair compiles, uncounted."""
    listing = f"{WITH}; import json, sys; print(json.dumps([n for n in {LATE + OPTIONAL} if n in sys.modules]))"
    with TemporaryDirectory() as folder:
        run = partial(run_python, bytecode=Path(folder))
        pairs = [(run(WITH)[0], run(WITHOUT)[0]) for _ in range(8 if quick else 22)][1:]
        loaded = json.loads(run(listing)[1])
    cost = Paired.of(pairs)
    report.figures |= {
        "import_ms": round(cost.extra.median, 1),
        "import_quietest_ms": round(cost.quietest, 1),
        "imports_clean": not loaded,
        "imports_loaded": loaded,
        "import_with_ms": cost.dearer.plain(),
        "import_without_ms": cost.cheaper.plain(),
    }
    report.lines += [
        "import tunewright, CPU time beyond numpy and msgspec",
        f"  {cost.extra.text('ms', 1)}, quietest {cost.quietest:.1f}",
        f"  loads {', '.join(loaded) or 'nothing'} of what it should not",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Time, compare, report."""
    given = parser(__doc__).parse_args(arguments)
    report = Report()
    measure_import(report, quick=given.quick)
    measure_launches(report, quick=given.quick)
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
