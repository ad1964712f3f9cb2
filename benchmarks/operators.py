"""OpenCL kernels tuned against their default and the median config; operators dispatched against every implementation.

    python benchmarks/operators.py [--quick] [--json] [--trials 150] [--sample 1000] [--part opencl|dispatch|cost]

- opencl: each kernel is searched from scratch on one compute unit, and beside it a random sample of its space is timed.
  The winner, the default, the sample's median and its best five are then timed in turn, by the device's events; ratios
  are those of neighbours, their median is told. `trials_needed` is the first trial with 90 % of the speed of the
  sample's best. The sample of `conv2d`, `transpose` and `reduce` is a fifth as large as that of `gemm`.
- dispatch: cells (operator, shape, dtype) on one thread. Each is raced once, as a first call does, with every
  implementation as it comes; afterwards all implementations and the dispatched call are timed in turn by the wall
  clock. `worst_vs_best` is the largest ratio of the dispatched call to the best single implementation of a cell, called
  directly; `worst_choice` is the same without what the dispatched call itself costs. `geomean_vs_torch` compares a call
  that returns a new array with torch as its users call it, on tensors of its own: below 1 is faster.
- cost: a dispatched call less the implementation called directly, beside a tuned kernel's cached launch less the same.
"""

from __future__ import annotations

import os

# One thread for all: numpy and torch read these when they are imported.
os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from math import exp, log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from figures import Goal, Paired, Report, parser

import tunewright as tw
from tunewright.engine.budget import Budget
from tunewright.errors import TunewrightError
from tunewright.model.signature import Signature
from tunewright.model.trial import Timing
from tunewright.opencl import DeviceSelector
from tunewright.operators import by_numpy, dispatch
from tunewright.operators import opencl_kernels as kernels
from tunewright.operators.registry import installed

ONE = DeviceSelector(units=1)
SLOWER = 1.03
GOALS = (
    Goal("gemm.vs_median", ">=", 3),
    Goal("gemm.of_best_random", ">=", 0.9),
    Goal("gemm.trials_needed", "<=", 150),
    Goal("conv2d.vs_median", ">=", 2),
    Goal("transpose.vs_median", ">=", 2),
    Goal("reduce.vs_median", ">=", 2),
    Goal("worst_vs_best", "<=", SLOWER),
    Goal("geomean_vs_torch", "<", 1.0),
    Goal("dispatched_us", "<=", 2),
)


def declared(name: str, space: tw.Space, default: dict[str, int], source: Any, reference: Any) -> tw.Tuned:
    """A kernel of the library on one compute unit, under the name by which workers find it in this file."""
    given = getattr(kernels, name).function

    def kernel() -> None: ...

    kernel.__signature__ = signature(given, eval_str=True)  # type: ignore[attr-defined]
    kernel.__name__ = kernel.__qualname__ = name
    return tw.tune(space, backend=source(ONE), default=default, reference=reference)(kernel)


gemm = declared("gemm", kernels.GEMM, kernels.GEMM_DEFAULT, kernels.gemm_source, np.matmul)
conv2d = declared("conv2d", kernels.CONV2D, kernels.CONV2D_DEFAULT, kernels.conv2d_source, kernels.window)
transpose = declared(
    "transpose", kernels.TRANSPOSE, kernels.TRANSPOSE_DEFAULT, kernels.transpose_source, lambda x: x.T.copy()
)
reduce = declared("reduce", kernels.REDUCE, kernels.REDUCE_DEFAULT, kernels.reduce_source, lambda x: x.sum(axis=1))


def normal(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def calls() -> dict[str, tuple[tw.Tuned, list[Any]]]:
    """Each kernel with arguments of the size it is tuned for."""
    empty = lambda *shape: np.zeros(shape, np.float32)  # noqa: E731
    return {
        "gemm": (gemm, [normal(512, 512), normal(512, 512), empty(512, 512)]),
        "conv2d": (conv2d, [normal(1024, 1024), normal(7, 7), empty(1018, 1018)]),
        "transpose": (transpose, [normal(2048, 2048), empty(2048, 2048)]),
        "reduce": (reduce, [normal(1024, 4096), empty(1024)]),
    }


def readings(kernel: tw.Tuned, args: list[Any], config: Any) -> Callable[[], float]:
    """Reads the seconds of one launch of a config."""
    built = kernel.backend.build(kernel.kernel, config, Signature.of(kernel.parameters, args))
    launch = kernel.backend.load(kernel.kernel, built)
    timer = kernel.backend.timer(launch, args, 1)
    return lambda: timer(1)


def sampled(kernel: tw.Tuned, args: list[Any], count: int) -> tuple[dict[Any, float], int]:
    """The quickest of three launches for configs at random, and how many could not be built."""
    chosen = list(dict.fromkeys(kernel.space.sample(np.random.default_rng(1), count)))
    seconds: dict[Any, float] = {}
    for config in chosen:
        try:
            read = readings(kernel, args, config)
            seconds[config] = min(read() for _ in range(3))
        except TunewrightError:
            continue
    return seconds, len(chosen) - len(seconds)


def in_turn(reads: dict[str, Callable[[], float]], rounds: int) -> dict[str, np.ndarray]:
    """What each reads in each round; the first visit of all is not counted."""
    seen: dict[str, list[float]] = {name: [] for name in reads}
    for number in range(rounds + 1):
        for name, read in reads.items():
            read()  # another ran before it
            if (value := read()) and number:
                seen[name].append(value)
    return {name: np.array(values) for name, values in seen.items()}


def tuned_figures(kernel: tw.Tuned, args: list[Any], folder: Path, trials: int, sample: int) -> dict[str, Any]:
    """One kernel searched, sampled and compared."""
    session = tw.Session(cache=str(folder), mode="tune", resolution=1.0)
    kernel.using(session)
    began = time.perf_counter()
    decision = kernel.tune(*args, budget=Budget(trials))
    spent = time.perf_counter() - began
    seconds, unbuilt = sampled(kernel, args, sample)
    ranked = sorted(seconds, key=seconds.__getitem__)
    median = ranked[len(ranked) // 2]
    rivals = {f"random {i}": config for i, config in enumerate(ranked[:5])}
    named = {"tuned": decision.config, "default": kernel.default, "median": median, **rivals}
    found = in_turn({name: readings(kernel, args, config) for name, config in named.items()}, 15)
    ratio = {name: float(np.median(found[name] / found["tuned"])) for name in named}
    made = [trial for trial in session.store.trials(kernel.problem(args).key) if isinstance(trial.outcome, Timing)]
    of_best = min(ratio[name] for name in rivals)
    # Trials were timed in another mood of the machine than the sample; the winner, which is in both, is the measure.
    own = min(trial.seconds for trial in made if trial.config == decision.config)
    within = [i for i, trial in enumerate(made, 1) if trial.seconds <= own * of_best / 0.9]
    return {
        "vs_default": round(ratio["default"], 2),
        "vs_median": round(ratio["median"], 2),
        "of_best_random": round(of_best, 3),
        "worst_over_best": round(max(seconds.values()) / min(seconds.values()), 1),
        "trials_needed": within[0] if within else None,
        "trials": trials,
        "sample": len(seconds),
        "unbuilt": unbuilt,
        "milliseconds": round(1e3 * float(np.median(found["tuned"])), 3),
        "search_seconds": round(spent, 1),
        "config": dict(decision.config),
    }


def opencl(report: Report, folder: Path, given: Any) -> None:
    """Every kernel, or with --quick the one that compiles fastest."""
    for name, (kernel, args) in calls().items():
        if name != (given.kernel or ("reduce" if given.quick else name)):
            continue
        sample = given.sample if name == "gemm" else max(5, given.sample // 5)
        found = tuned_figures(kernel, args, folder / name, given.trials, sample)
        report.figures[name] = found
        report.lines.append(
            f"{name:<10} {found['milliseconds']:8.3f} ms  {found['vs_default']:5.2f}x default  "
            f"{found['vs_median']:5.2f}x median  {found['of_best_random']:.2f} of the best of {found['sample']}  "
            f"worst/best {found['worst_over_best']:.0f}  needed {found['trials_needed']} of {found['trials']} trials"
        )


CELLS: dict[str, list[tuple[tuple[int, ...], ...]]] = {
    "gemm": [
        ((64, 64), (64, 64)), ((128, 128), (128, 128)), ((256, 256), (256, 256)), ((512, 512), (512, 512)),
        ((1, 1024), (1024, 1024)), ((32, 1024), (1024, 1024)), ((512, 64), (64, 256)),
    ],
    "batched_gemm": [((8, 64, 64), (8, 64, 64)), ((32, 32, 32), (32, 32, 32)), ((4, 128, 128), (4, 128, 128))],
    "conv2d": [
        ((1, 1, 256, 256), (1, 1, 7, 7)), ((1, 1, 512, 512), (1, 1, 7, 7)), ((1, 16, 32, 32), (16, 16, 3, 3)),
        ((4, 8, 28, 28), (8, 8, 5, 5)),
    ],
    "softmax": [((64, 128),), ((256, 512),), ((1024, 1024),), ((32, 4096),)],
    "layer_norm": [
        ((64, 128), (128,), (128,)), ((256, 512), (512,), (512,)), ((1024, 1024), (1024,), (1024,)),
        ((32, 4096), (4096,), (4096,)),
    ],
    "attention": [((4, 64, 32),) * 3, ((8, 128, 64),) * 3, ((2, 256, 64),) * 3],
    "transpose": [((64, 64),), ((256, 256),), ((1000, 700),), ((2048, 2048),)],
    "reduce": [((64, 64),), ((512, 1000),), ((1024, 4096),), ((4096, 128),)],
}  # fmt: skip
QUICK = {"softmax": CELLS["softmax"][:1], "transpose": CELLS["transpose"][1:2], "reduce": CELLS["reduce"][1:2]}


def cells(quick: bool) -> list[tuple[str, str, tuple[tuple[int, ...], ...]]]:
    """Operators with dtypes and shapes; in float64 the first two of each, and the third product."""
    if quick:
        return [(name, "float32", shapes) for name, every in QUICK.items() for shapes in every]
    single = [(name, "float32", shapes) for name, every in CELLS.items() for shapes in every]
    double = [(name, "float64", shapes) for name, every in CELLS.items() for shapes in every[:2]]
    return single + double


def by_torch(name: str, inputs: Sequence[Any]) -> Callable[[], Any]:
    """The operator as users of torch call it."""
    import torch

    torch.set_num_threads(1)
    functional, given = torch.nn.functional, [torch.from_numpy(array) for array in inputs]
    runs: dict[str, Callable[..., Any]] = {
        "gemm": torch.matmul,
        "batched_gemm": torch.matmul,
        "conv2d": functional.conv2d,
        "softmax": lambda x: functional.softmax(x, -1),
        "layer_norm": lambda x, scale, shift: functional.layer_norm(x, x.shape[1:], scale, shift),
        "attention": lambda q, k, v: functional.scaled_dot_product_attention(q[None], k[None], v[None])[0],
        "transpose": lambda x: x.T.contiguous(),
        "reduce": lambda x: x.sum(-1),
    }
    return lambda: runs[name](*given)


def timed(call: Callable[[], Any], count: int) -> Callable[[], float]:
    """Wall seconds of one call among some."""

    def read() -> float:
        start = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - start) / count

    return read


def singles(chosen: Any, args: Sequence[Any]) -> dict[str, Callable[..., Any]]:
    """Each implementation as it comes, ready to launch."""
    tuned = chosen.kernel_for(args)
    kernel, backend, exact = tuned.kernel, tuned.backend, Signature.of(tuned.parameters, args)
    starts = {str(start["variant"]): tw.Config(start) for start in tuned.declaration.seeds}
    return {name: backend.load(kernel, backend.build(kernel, start, exact)) for name, start in starts.items()}


def cell(name: str, inputs: Sequence[Any], session: tw.Session, quick: bool) -> dict[str, Any]:
    """One cell: raced as by a first call, then compared with each implementation it has."""
    there = {one.name for one in installed().implementations if one.operator.name == name}
    chosen = dispatch(name, threads=1, session=session, without=sorted(there & {"mlir"}) if quick else ())
    began = time.perf_counter()
    out = chosen(*inputs)
    first = time.perf_counter() - began
    launches = singles(chosen, (*inputs, out))
    chosen.into(*inputs, out)
    once = time.perf_counter()
    chosen.into(*inputs, out)
    count = min(200, max(1, int(1e-3 / (time.perf_counter() - once))))
    reads = {
        "dispatched": timed(partial(chosen.into, *inputs, out), count),
        "bare": timed(partial(chosen.bound(*inputs, out), *inputs, out), count),
        "new": timed(partial(chosen, *inputs), count),
        "torch": timed(by_torch(name, inputs), count),
    }
    reads |= {f"by {one}": timed(partial(launch, *inputs, out), count) for one, launch in launches.items()}
    found = in_turn(reads, 9 if quick else 25)
    ratios = {one: float(np.median(found["dispatched"] / found[f"by {one}"])) for one in launches}
    bare = max(float(np.median(found["bare"] / found[f"by {one}"])) for one in launches)
    best = max(ratios, key=ratios.__getitem__)
    return {
        "chosen": str(chosen.decide(*inputs).config["variant"]),
        "best": best,
        "vs_best": round(ratios[best], 3),
        "choice_vs_best": round(bare, 3),
        "vs_torch": round(float(np.median(found["new"] / found["torch"])), 3),
        "microseconds": round(1e6 * float(np.median(found["dispatched"])), 1),
        "first_call_seconds": round(first, 1),
    }


def dispatching(report: Report, folder: Path, given: Any) -> None:
    """All cells."""
    pool = "serial" if given.quick else "process"
    session = tw.Session(cache=str(folder), mode="tune", pool=pool, resolution=1.0)
    made: dict[str, dict[str, Any]] = {}
    for name, dtype, shapes in cells(given.quick):
        label = f"{name} {dtype} {' '.join('x'.join(map(str, shape)) for shape in shapes[:2])}"
        made[label] = cell(name, [normal(*shape, dtype=dtype) for shape in shapes], session, given.quick)
        one = made[label]
        report.lines.append(
            f"{label:<44} {one['chosen']:<16} {one['microseconds']:10.1f} us  "
            f"{one['vs_best']:.3f} ({one['choice_vs_best']:.3f} bare) of {one['best']:<16} "
            f"{one['vs_torch']:.2f} of torch"
        )
    report.figures |= {
        "cells": made,
        "cells_count": len(made),
        "worst_vs_best": max(one["vs_best"] for one in made.values()),
        "worst_choice": max(one["choice_vs_best"] for one in made.values()),
        "cells_slower": sum(one["vs_best"] > SLOWER for one in made.values()),
        "geomean_vs_torch": round(exp(sum(log(one["vs_torch"]) for one in made.values()) / len(made)), 3),
    }


def cost(report: Report, folder: Path, given: Any) -> None:
    """What a dispatched call adds, beside a tuned kernel's."""
    off = tw.Session(cache=str(folder), mode="off")
    x, out = normal(4, 4), np.zeros(4, np.float32)
    dispatched = dispatch("reduce", only="numpy", threads=1, session=off).into

    def summed(x: tw.In("M", "N"), out: tw.Out("M"), *, knob: int) -> None:
        np.sum(x, axis=-1, out=out)

    tuned = tw.tune(tw.Space(tw.Knob("knob", [1, 2])), session=off)(summed)
    ways: dict[str, Callable[..., Any]] = {"dispatched": dispatched, "tuned": tuned, "direct": by_numpy.reduce}
    for way in ways.values():
        way(x, out)
    seen: dict[str, list[float]] = {name: [] for name in ways}
    for block in range(40 if given.quick else 200):
        for name in sorted(ways, reverse=bool(block % 2)):
            way, start = ways[name], time.process_time_ns()
            for _ in range(500):
                way(x, out)
            seen[name].append((time.process_time_ns() - start) / 5e5)
    for name in ("dispatched", "tuned"):
        pair = Paired.of(zip(seen[name][1:], seen["direct"][1:], strict=True))
        report.figures[f"{name}_us"] = round(pair.extra.median, 3)
        report.lines.append(f"a {name} call costs {pair.extra.text('us', 2)} beyond the function itself")


def main() -> int:
    made = parser(__doc__)
    made.add_argument("--trials", type=int, default=None, help="of each search (150; quick: 4)")
    made.add_argument("--sample", type=int, default=None, help="configs of gemm timed at random (1000; quick: 25)")
    made.add_argument("--kernel", choices=tuple(calls()), help="of the part opencl, only this")
    made.add_argument("--part", choices=("opencl", "dispatch", "cost"), help="only this")
    given = made.parse_args()
    given.trials = given.trials or (4 if given.quick else 150)
    given.sample = given.sample or (25 if given.quick else 1000)
    report = Report()
    parts = {"opencl": opencl, "dispatch": dispatching, "cost": cost}
    with TemporaryDirectory() as folder:
        for name, part in parts.items():
            if given.part in (None, name):
                part(report, Path(folder, name), given)
    report.figures["load"] = round(os.getloadavg()[0], 2)
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
