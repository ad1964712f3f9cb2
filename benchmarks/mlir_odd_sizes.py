"""Products of bfloat16 and int8 whose sizes no block divides, searched on real MLIR, against torch.

    python benchmarks/mlir_odd_sizes.py [--quick] [--json] [--trials 30] [--only NAME]

As `mlir_payloads.py`, which see: one thread, CPU time, called in turn. torch's product of int8 takes terms that are a
multiple of 4 or not, as ours.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from figures import Report, parser
from mlir_payloads import Row, geomean, line, told, tuned

import tunewright as tw
from tunewright.mlir import payloads
from tunewright.mlir.dot_plans import dot_plan

SIZES = {
    "bf16_500": ("bf16", 500, 500, 500),
    "bf16_77": ("bf16", 77, 768, 768),
    "int8_501": ("i8", 250, 512, 501),
}


def declared(name: str) -> tw.Tuned:
    """A product under the name by which workers find it in this file."""

    def product(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...

    element, *sizes = SIZES[name]
    payload = payloads.matmul(*sizes, element=element)
    return tuned(name, payload, dot_plan(payload), product)


bf16_500, bf16_77, int8_501 = map(declared, SIZES)


def row(name: str) -> Row:
    """A product with its peers: numpy computes in float32."""
    import torch

    element, m, n, k = SIZES[name]
    to = np.int32 if element == "i8" else ml_dtypes.bfloat16

    def by_numpy(a: Any, b: Any) -> Any:
        return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(to)

    by_torch = torch._int_mm if element == "i8" else torch.matmul
    return Row(f"{element} {m}x{n}x{k}", globals()[name], ((m, k), (k, n)), by_numpy, by_torch, False, element)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, compare, report."""
    takes = parser(__doc__)
    takes.add_argument("--trials", type=int, help="of each search: 30, or 12 if quick")
    takes.add_argument("--only", action="append", choices=list(SIZES), help="this product alone; may be repeated")
    given = takes.parse_args(arguments)
    trials, rounds = given.trials or (12 if given.quick else 30), 40 if given.quick else 60
    report, load, found = Report(), os.getloadavg()[0], {}
    with tempfile.TemporaryDirectory() as place:
        for name in given.only or SIZES:
            one = row(name)
            found[name] = told(one, Path(place), trials, rounds)
            report.lines.append(line(one, found[name]))
            print(report.lines[-1], file=sys.stderr, flush=True)
            report.check(found[name]["right"], f"{name} differs from its peers")
    report.figures = {name: one["ratio"] for name, one in found.items()} | {
        "geomean": geomean([one["ratio"] for one in found.values()]),
        "right": all(one["right"] for one in found.values()),
        "payloads": found,
        "load": round(load, 2),
        "quick": given.quick,
    }
    return report.finish((), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
