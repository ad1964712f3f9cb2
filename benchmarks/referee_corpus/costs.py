"""What verification during timing costs: the tutorials' kernels, tuned with and without it by turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import MethodType
from typing import Any

import tunewright as tw
from tunewright.engine.budget import Budget
from tunewright.kernel.tuned import Tuned
from tunewright.measure.evaluator import Evaluator, EvaluatorOptions
from tunewright.pools.kernel_loader import load_target

TUTORIALS = Path(__file__).resolve().parents[2] / "tutorials"
TRIALS, TURNS = 8, 6


def ratio(target: str, sizes: Mapping[str, int]) -> float:
    """Seconds of a tuning with verification over those of one without it, in the median of turns.

    Both build and try the same configs. A race now and then needs a second one, whichever of the two it is in.
    """
    kernel: Any = load_target(str(TUTORIALS / target))
    ratios = []
    for turn in range(TURNS):
        seconds = {}
        for verified in (True, False) if turn % 2 else (False, True):
            began = time.perf_counter()
            tune(kernel, sizes, verified=verified)
            seconds[verified] = time.perf_counter() - began
        ratios.append(seconds[True] / seconds[False])
    return median(ratios)


def tune(kernel: Tuned[Any, Any], sizes: Mapping[str, int], *, verified: bool) -> None:
    """Tune in this process, where the evaluator can be told not to verify."""

    def make_evaluator(self: Tuned[Any, Any], cases: Any, cache: Any) -> Evaluator:
        usual = type(self).make_evaluator(self, cases, cache)
        return Evaluator(usual.workload, EvaluatorOptions(verified=verified), target=usual.target)

    with TemporaryDirectory() as cache:
        session = tw.Session(
            store="memory:", cache=cache, pool="serial", strategy="random", min_expected_gain=0.0, seed=1
        )
        kernel.using(session)
        kernel.__dict__["make_evaluator"] = MethodType(make_evaluator, kernel)
        kernel.tune(*kernel.example(sizes), budget=Budget(TRIALS), fresh=True)


COSTS: dict[str, Callable[[], float]] = {
    "gemm": partial(ratio, "1_gemm.py:gemm", {"M": 256, "K": 256, "N": 256}),
    "gemm small": partial(ratio, "1_gemm.py:gemm", {"M": 64, "K": 64, "N": 64}),
    "variants": partial(ratio, "2_variants.py:gemm", {"M": 256, "K": 256, "N": 256}),
}
