"""Models that torch-mlir exported, tuned from their files, beside torch and beside the payload as it is written.

    python benchmarks/mlir_exported.py [--quick] [--json] [--trials 60] [--only NAME]

The files are in benchmarks/mlir_models/. Each is searched on one thread, schedules that change the last digits allowed,
and compared with torch (eager) by the CPU time of the thread, called in turn; ratios are those of neighbours.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from figures import Report, parser

import tunewright as tw
from mlir import in_turn
from tunewright.engine.budget import Budget
from tunewright.mlir.model_plans import model_plan
from tunewright.mlir.models import kernel_source, read_file
from tunewright.pools.kernel_loader import load_target

FOLDER = Path(__file__).resolve().parent / "mlir_models"


def told(name: str, folder: Path, trials: int, rounds: int) -> dict[str, Any]:
    """Search, check against torch, compare."""
    import torch
    from mlir_model_exports import MODELS

    torch.set_num_threads(1)
    function, shapes = MODELS[name]
    path = FOLDER / f"{name}.mlir"
    payload = read_file(path)
    changing = [variant.name for variant in model_plan(payload).space.variants if variant.numerics]
    source = folder / f"{name}.py"
    source.write_text(kernel_source(path, payload, changing))
    kernel = load_target(f"{source}:{name}")
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape, dtype=np.float32) * np.float32(0.1) for shape in shapes]
    tensors = [torch.from_numpy(one) for one in given]
    with torch.no_grad():
        wanted = function(*(one.double() for one in tensors)).numpy()
        args = [*given, np.zeros(wanted.shape, np.float32)]
        kernel.using(tw.Session(cache=str(folder / "cache"), resolution=1.0))
        start = time.perf_counter()
        decision = kernel.tune(*args, budget=Budget(trials))
        spent = time.perf_counter() - start
        kernel(*args)
        right = bool(np.allclose(args[-1], wanted, atol=1e-4 * np.abs(wanted).max()))
        found = in_turn({"ours": lambda: kernel(*args), "torch": lambda: function(*tensors)}, rounds, time.thread_time)
    ratios, why = found["torch"] / found["ours"], decision.evidence
    return {
        "vs_torch": round(float(np.median(ratios)), 3),
        "best_vs_torch": round(float(found["torch"].min() / found["ours"].min()), 3),
        "vs_written": round(why.default_seconds / why.seconds, 1) if why and why.default_seconds else None,
        "ms": round(1e3 * float(np.median(found["ours"])), 4),
        "right": right,
        "config": str(decision.config),
        "search_s": round(spent, 1),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, compare, report."""
    takes = parser(__doc__)
    takes.add_argument("--trials", type=int, help="of each search: 60, or 12 if quick")
    takes.add_argument("--only", action="append", choices=sorted(path.stem for path in FOLDER.glob("*.mlir")))
    given = takes.parse_args(arguments)
    report, load = Report(), os.getloadavg()[0]
    trials, rounds = given.trials or (12 if given.quick else 60), 8 if given.quick else 60
    found = {}
    with tempfile.TemporaryDirectory() as place:
        for path in sorted(FOLDER.glob("*.mlir")):
            if given.only and path.stem not in given.only:
                continue
            one = found[path.stem] = told(path.stem, Path(place), trials, rounds)
            report.lines.append(f"{path.stem:>18}  {one}")
            print(report.lines[-1], file=sys.stderr, flush=True)
            report.check(one["right"], f"{path.stem} differs from torch")
    gains = [one["vs_written"] for one in found.values() if one["vs_written"]]
    report.figures = {
        "geomean_vs_torch": round(float(np.exp(np.mean(np.log([one["vs_torch"] for one in found.values()])))), 3),
        "geomean_vs_written": round(float(np.exp(np.mean(np.log(gains)))), 2) if gains else None,
        "right": all(one["right"] for one in found.values()),
        "models": found,
        "load": round(load, 2),
        "quick": given.quick,
    }
    return report.finish((), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
