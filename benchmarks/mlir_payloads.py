"""Schedules searched on real MLIR for more than products, against numpy and torch, whichever is faster.

    python benchmarks/mlir_payloads.py [--quick] [--json] [--trials 100] [--only NAME]

Each payload is searched from scratch on one thread, with sums in any order allowed, as both peers add up in any order.
Then ours, numpy's and torch's (eager, and the library call where there is one) are called in turn, by the CPU time of
the thread; ratios are those of neighbours, `best_ratio` is that of the least of each. `geomean_fused` is over the
payloads where fusing saves memory traffic: what comes after a product, softmax, layer norm and attention. `geomean_all`
is over all of them, products of bfloat16 and int8 included, in which torch uses what the processor has for them. Each
row is printed to stderr as it ends.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from figures import Goal, Report, parser

import tunewright as tw
from mlir import in_turn
from tunewright.engine.budget import Budget
from tunewright.mlir import Mlir, payloads
from tunewright.mlir.contraction_plans import contraction_plan
from tunewright.mlir.dot_plans import dot_plan
from tunewright.mlir.gemm_plans import gemm_plan
from tunewright.mlir.payload import Payload
from tunewright.mlir.plan import SchedulePlan
from tunewright.mlir.row_plans import row_plan

GOALS = (
    Goal("batch", ">=", 0.95),
    Goal("conv2d", ">=", 1.0),
    Goal("softmax", ">=", 1.0),
    Goal("layer_norm", ">=", 1.2),
    Goal("attention", ">=", 1.3),
    Goal("geomean_all", ">=", 1.15),
    Goal("geomean_fused", ">=", 1.1),
)


@dataclass(frozen=True)
class Row:
    """A payload with its kernel, its peers, and whether fusing saves traffic there; `title` has its sizes."""

    title: str
    kernel: tw.Tuned
    shapes: tuple[tuple[int, ...], ...]
    by_numpy: Callable[..., Any]
    by_torch: Callable[..., Any]
    fused: bool
    element: str = "f32"


def tuned(name: str, payload: Payload, plan: SchedulePlan, function: Callable[..., Any]) -> tw.Tuned:
    """A kernel that workers find by its name in this file."""
    function.__name__ = function.__qualname__ = name
    numerics = [variant.name for variant in plan.space.variants if variant.numerics]
    return tw.tune(plan.space, backend=Mlir(payload, plan), reference=payload.reference, numerics=numerics)(function)


def two(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...
def biased(a: tw.In("M", "K"), b: tw.In("K", "N"), bias: tw.In("N"), c: tw.Out("M", "N")): ...
def batched(a: tw.In("B", "M", "K"), b: tw.In("B", "K", "N"), c: tw.Out("B", "M", "N")): ...
def image(x: tw.In("I", "H", "W", "C"), f: tw.In("S", "S", "C", "F"), y: tw.Out("I", "P", "Q", "F")): ...
def rows(x: tw.In("M", "N"), y: tw.Out("M", "N")): ...
def normed(x: tw.In("M", "N"), scale: tw.In("N"), shift: tw.In("N"), y: tw.Out("M", "N")): ...
def mixed(q: tw.In("H", "L", "D"), k: tw.In("H", "L", "D"), v: tw.In("H", "L", "D"), o: tw.Out("H", "L", "D")): ...


_gelu = payloads.matmul(512, 512, 512, bias=True, after="gelu")
_relu = payloads.matmul(1024, 1024, 64, bias=True, after="relu")
_batch = payloads.batch_matmul(16, 128, 128, 64)
_conv = payloads.conv2d((1, 58, 58, 64), 64, 3, after="relu")
_softmax = payloads.softmax(1024, 1024)
_norm = payloads.layer_norm(1024, 1024)
_attention = payloads.attention(8, 128, 64)
_bf16 = payloads.matmul(512, 512, 512, element="bf16")
_bf16_large = payloads.matmul(1024, 1024, 1024, bias=True, after="relu", element="bf16")
_bf16_batch = payloads.batch_matmul(16, 128, 128, 64, element="bf16")
_int8 = payloads.matmul(512, 512, 512, element="i8")

bias_gelu = tuned("bias_gelu", _gelu, gemm_plan(_gelu), biased)
thin_relu = tuned("thin_relu", _relu, gemm_plan(_relu), biased)
batch_product = tuned("batch_product", _batch, contraction_plan(_batch), batched)
conv_relu = tuned("conv_relu", _conv, contraction_plan(_conv), image)
softmax = tuned("softmax", _softmax, row_plan(_softmax), rows)
layer_norm = tuned("layer_norm", _norm, row_plan(_norm), normed)
attention = tuned("attention", _attention, row_plan(_attention), mixed)
bf16_product = tuned("bf16_product", _bf16, dot_plan(_bf16), two)
bf16_relu = tuned("bf16_relu", _bf16_large, dot_plan(_bf16_large), biased)
bf16_batch_product = tuned("bf16_batch_product", _bf16_batch, dot_plan(_bf16_batch), batched)
int8_product = tuned("int8_product", _int8, dot_plan(_int8), two)


def np_gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x * x * x)))


def np_softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    powers /= powers.sum(-1, keepdims=True)
    return powers


def np_norm(x: Any, scale: Any, shift: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * scale + shift


def listed() -> dict[str, Row]:
    """All payloads with their peers."""
    import torch.nn.functional as by
    from torch import bmm

    square, thin = ((512, 512), (512, 512), (512,)), ((1024, 64), (64, 1024), (1024,))
    heads = ((8, 128, 64),) * 3
    return {
        "gelu": Row(
            "matmul 512 + bias + gelu",
            bias_gelu,
            square,
            lambda a, b, c: np_gelu(a @ b + c),
            lambda a, b, c: by.gelu(a @ b + c, approximate="tanh"),
            True,
        ),
        "thin": Row(
            "matmul 1024x1024x64 + bias + relu",
            thin_relu,
            thin,
            lambda a, b, c: np.maximum(a @ b + c, 0),
            lambda a, b, c: by.relu(a @ b + c),
            True,
        ),
        "batch": Row(
            "batch matmul 16x128x128x64",
            batch_product,
            ((16, 128, 64), (16, 64, 128)),
            lambda a, b: a @ b,
            bmm,
            False,
        ),
        "conv2d": Row(
            "conv2d 56x56, 64 to 64, 3x3 + relu",
            conv_relu,
            ((1, 58, 58, 64), (3, 3, 64, 64)),
            lambda x, f: np.maximum(_conv.reference(x, f), 0),
            # Images as channels last, filters as torch has them: copies are its own affair.
            lambda x, f: by.relu(by.conv2d(x.permute(0, 3, 1, 2), f.permute(3, 2, 0, 1))).permute(0, 2, 3, 1),
            False,
        ),
        "softmax": Row("softmax 1024x1024", softmax, ((1024, 1024),), np_softmax, lambda x: by.softmax(x, -1), True),
        "layer_norm": Row(
            "layer norm 1024x1024",
            layer_norm,
            ((1024, 1024), (1024,), (1024,)),
            np_norm,
            lambda x, scale, shift: by.layer_norm(x, (x.shape[-1],), scale, shift),
            True,
        ),
        "attention": Row(
            "attention 8x128x64",
            attention,
            heads,
            lambda q, k, v: np_softmax(q @ np.swapaxes(k, -1, -2) / 8.0) @ v,
            by.scaled_dot_product_attention,
            True,
        ),
    } | narrow()


def narrow() -> dict[str, Row]:
    """Products of bfloat16 and int8. numpy has no fast ones, so it computes in float32, and rounds bfloat16 again."""
    import torch
    from torch import bmm

    def wide(*arrays: Any) -> list[Any]:
        return [one.astype(np.float32) for one in arrays]

    def rounded(array: Any) -> Any:
        return array.astype(ml_dtypes.bfloat16)

    square = ((512, 512),) * 2
    return {
        "bf16": Row(
            "bf16 matmul 512",
            bf16_product,
            square,
            lambda a, b: rounded(np.matmul(*wide(a, b))),
            torch.matmul,
            False,
            "bf16",
        ),
        "bf16_relu": Row(
            "bf16 matmul 1024 + bias + relu",
            bf16_relu,
            ((1024, 1024), (1024, 1024), (1024,)),
            lambda a, b, c: rounded(np.maximum(np.matmul(*wide(a, b)) + c.astype(np.float32), 0)),
            lambda a, b, c: torch.addmm(c, a, b).relu_(),
            False,
            "bf16",
        ),
        "bf16_batch": Row(
            "bf16 batch matmul 16x128x128x64",
            bf16_batch_product,
            ((16, 128, 64), (16, 64, 128)),
            lambda a, b: rounded(np.matmul(*wide(a, b))),
            bmm,
            False,
            "bf16",
        ),
        "int8": Row(
            "int8 matmul 512",
            int8_product,
            square,
            lambda a, b: np.matmul(*wide(a, b)).astype(np.int32),
            torch._int_mm,
            False,
            "i8",
        ),
    }


def made(row: Row) -> list[Any]:
    """The arrays of a row."""
    rng = np.random.default_rng(0)
    if row.element == "i8":
        return [rng.integers(-128, 128, size=shape).astype(np.int8) for shape in row.shapes]
    floats = [rng.standard_normal(shape, dtype=np.float32) for shape in row.shapes]
    return [one.astype(ml_dtypes.bfloat16) for one in floats] if row.element == "bf16" else floats


def as_tensor(array: Any) -> Any:
    """The same memory as a tensor; torch does not know the bfloat16 of numpy."""
    import torch

    if array.dtype != ml_dtypes.bfloat16:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)


def is_close(ours: Any, theirs: Any, element: str) -> bool:
    """Whether results agree: integers are equal, bfloat16 to two units in the last place of the larger ones."""
    theirs = theirs.float().numpy() if hasattr(theirs, "float") and element != "i8" else np.asarray(theirs)
    if element == "i8":
        return bool((ours == theirs).all())
    scale = float(np.abs(theirs.astype(np.float32)).max())
    return np.allclose(
        ours.astype(np.float32), theirs.astype(np.float32), atol=1e-3 if element == "f32" else scale / 128
    )


def told(row: Row, folder: Path, trials: int, rounds: int) -> dict[str, Any]:
    """Search, check against both peers, compare."""
    import torch

    torch.set_num_threads(1)
    given = made(row)
    wanted = row.by_numpy(*given)
    args = [*given, np.zeros(wanted.shape, wanted.dtype)]
    row.kernel.using(tw.Session(cache=str(folder), resolution=1.0))
    start = time.perf_counter()
    decision = row.kernel.tune(*args, budget=Budget(trials))
    spent = time.perf_counter() - start
    row.kernel(*args)
    tensors = [as_tensor(one) for one in given]
    with torch.no_grad():
        close = [is_close(args[-1], one, row.element) for one in (wanted, row.by_torch(*tensors))]
        calls = {
            "ours": lambda: row.kernel(*args),
            "numpy": lambda: row.by_numpy(*given),
            "torch": lambda: row.by_torch(*tensors),
        }
        found = in_turn(calls, rounds, time.thread_time)
    peer = min(("numpy", "torch"), key=lambda name: float(np.median(found[name])))
    ratios = found[peer] / found["ours"]
    return {
        "ratio": round(float(np.median(ratios)), 3),
        "best_ratio": round(float(found[peer].min() / found["ours"].min()), 3),
        "spread": [round(float(one), 3) for one in np.percentile(ratios, (10, 90))],
        "peer": peer,
        **{f"{name}_ms": round(1e3 * float(np.median(one)), 4) for name, one in found.items()},
        "right": all(close),
        "config": str(decision.config),
        "search_s": round(spent, 1),
    }


def line(row: Row, one: dict[str, Any]) -> str:
    """A row for people."""
    return (
        f"{row.title:>36}  {one['ours_ms']:8.3f} ms, numpy {one['numpy_ms']:.3f}, torch {one['torch_ms']:.3f}: "
        f"{one['ratio']:.2f}x {one['peer']} ({one['spread'][0]:.2f} – {one['spread'][1]:.2f}; best of each "
        f"{one['best_ratio']:.2f})  {one['config']}, searched in {one['search_s']} s"
    )


def geomean(ratios: Sequence[float]) -> float | None:
    return round(float(np.exp(np.mean(np.log(ratios)))), 3) if ratios else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, compare, report."""
    takes = parser(__doc__)
    takes.add_argument("--trials", type=int, help="of each search: 100, or 40 if quick")
    takes.add_argument("--only", action="append", metavar="NAME", help="this payload alone; may be repeated")
    given = takes.parse_args(arguments)
    trials, rounds = given.trials or (40 if given.quick else 100), 40 if given.quick else 60
    report, load = Report(), os.getloadavg()[0]
    known = listed()
    if unknown := set(given.only or ()) - set(known):
        takes.error(f"no payload {', '.join(unknown)}; there are: {', '.join(known)}")
    chosen = {name: row for name, row in known.items() if not given.only or name in given.only}
    report.lines.append(f"load {load:.1f} on {os.cpu_count()} processors before it began")
    found = {}
    with tempfile.TemporaryDirectory() as place:
        for name, row in chosen.items():
            found[name] = told(row, Path(place), trials, rounds)
            report.lines.append(line(row, found[name]))
            print(report.lines[-1], file=sys.stderr, flush=True)
            report.check(found[name]["right"], f"{name} differs from its peers")
    report.figures = {name: one["ratio"] for name, one in found.items()} | {
        "geomean_all": geomean([one["ratio"] for one in found.values()]),
        "geomean_fused": geomean([found[name]["ratio"] for name, row in chosen.items() if row.fused]),
        "right": all(one["right"] for one in found.values()),
        "payloads": found,
        "load": round(load, 2),
        "quick": given.quick,
    }
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
