"""What a launch of a tuned Triton kernel costs in Python: ours and Triton's own autotuner, over the plain JIT.

    python benchmarks/triton_launch.py [--quick] [--json]

The whole Python of a launch, from `kernel[grid](...)` to the driver, of a matmul with three tensors and nine ints:
through our drop-in, through `triton.autotune`, and directly with the config spelled out. Rung 2: a fake driver
launches nothing, so this is the cost of Python alone; no GPU is involved.

Blocks of all three are timed in turn, in another order each time, in CPU time; a figure is the median of the ratios
within a round, its spread beside it; "quietest" is the ratio of the fastest blocks. Needs the dependency group `peers`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from tempfile import TemporaryDirectory
from typing import Any

import torch
import triton
import triton.language as tl
from figures import Goal, Report, Series, parser

import tunewright as tw
from tunewright.testing.triton_driver import A100, FakeDriver, fake_driver
from tunewright.triton import autotune

GOALS = (Goal("launch_ratio", "<=", 1.2),)
RUNG = "fake driver (rung 2): only Python launch cost, no GPU"
GRID = (16,)
SIZE = 256
CONFIGS = [
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}, num_warps=4, num_stages=2),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}, num_warps=8, num_stages=2),
]

Call = Callable[[], Any]


@triton.jit
def matmul(  # noqa: PLR0913, PLR0917 - as Triton's are
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,  # noqa: N803
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,  # noqa: N803
):  # fmt: skip
    at_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    at_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        at_k = k + tl.arange(0, BLOCK_K)
        left = tl.load(a + at_m[:, None] * stride_am + at_k[None, :] * stride_ak)
        right = tl.load(b + at_k[:, None] * stride_bk + at_n[None, :] * stride_bn)
        total = tl.dot(left, right, total)
    inside = (at_m[:, None] < M) & (at_n[None, :] < N)
    tl.store(c + at_m[:, None] * stride_cm + at_n[None, :] * stride_cn, total.to(tl.float16), mask=inside)


def launches(report: Report, cache: str) -> dict[str, Call]:
    """The three ways to launch, tuned and warm; the fake driver notes nothing from here on."""
    tensors = [torch.zeros(SIZE, SIZE, dtype=torch.float16) for _ in range(3)]
    args = (*tensors, SIZE, SIZE, SIZE, *(step for tensor in tensors for step in tensor.stride()))
    session = tw.Session(cache=cache)
    ours = autotune(CONFIGS, key=["M", "N", "K"], session=session)(matmul)
    stock = triton.autotune(CONFIGS, key=["M", "N", "K"])(matmul)
    for tuner in (ours, stock):
        tuner[GRID](*args)
    spelled = ours.best_config.all_kwargs()
    report.check(spelled == stock.best_config.all_kwargs(), "the two tuners choose different configs")
    report.check(session.counts["measurements"] == len(CONFIGS), "not every config was measured once")
    return {
        "ours": lambda: ours[GRID](*args),
        "stock": lambda: stock[GRID](*args),
        "direct": lambda: matmul[GRID](*args, **spelled),
    }


@contextmanager
def loaded(function: Any) -> Iterator[None]:
    """Lets kernels count as loaded: the fake driver has no module, and Triton would load them at every launch."""
    kernels = [kernel for found, *_ in function.device_caches.values() for kernel in found.values()]
    for kernel in kernels:
        kernel.module = "loaded"
    try:
        yield
    finally:
        for kernel in kernels:
            kernel.module = None


def per_call_us(call: Call, calls: int) -> float:
    """CPU microseconds of one call among many."""
    start = time.process_time_ns()
    for _ in repeat(None, calls):
        call()
    return (time.process_time_ns() - start) / calls / 1e3


def rounds(ways: dict[str, Call], count: int, calls: int = 200) -> dict[str, Series]:
    """Blocks of every way in turn, the order rotating; the first round is dropped."""
    names = list(ways)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(count + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            times[name].append(per_call_us(ways[name], calls))
    return {name: Series(seen[1:]) for name, seen in times.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune, time in turn, report."""
    given = parser(__doc__).parse_args(arguments)
    report = Report()
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # said, or Triton warns
    with TemporaryDirectory() as folder, fake_driver(FakeDriver(A100)) as driver:
        triton.knobs.cache.dir = folder
        ways = launches(report, folder)
        driver.noted = False
        with loaded(matmul):
            times = rounds(ways, 40 if given.quick else 300)
    ratios = {
        name: Series(one / direct for one, direct in zip(times[name].values, times["direct"].values, strict=True))
        for name in ("ours", "stock")
    }
    report.figures |= {
        "launch_ratio": round(ratios["ours"].median, 3),
        "stock_launch_ratio": round(ratios["stock"].median, 3),
        "quietest_ratio": round(times["ours"].low / times["direct"].low, 3),
        "stock_quietest_ratio": round(times["stock"].low / times["direct"].low, 3),
        "launch_us": {name: round(series.median, 2) for name, series in times.items()},
        "rung": RUNG,
    }
    report.lines.append("a launch of a tuned Triton kernel, CPU time of its Python, over the plain JIT's")
    for name, series in ratios.items():
        quiet = times[name].low / times["direct"].low
        report.lines.append(f"  {name:<8}{series.text('x', 2)}, quietest {quiet:.2f}; {times[name].text('us', 1)}")
    report.lines.append(f"  direct  {times['direct'].text('us', 1)}; {RUNG}")
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
