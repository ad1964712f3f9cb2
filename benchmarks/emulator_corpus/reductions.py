"""Kernels that reduce, scan, sort or normalize rows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from emulator_corpus.case import Case, add, cdiv, configs, randn, unset

ROWS, COLUMNS = 12, 500


def rows(name, function, reference, inputs, **knobs):
    add(Case(name, function, inputs, lambda meta: (ROWS,), configs(B=[512, 512, 1024, 512], **knobs), reference))


def matrix_to(*outputs, **more):
    return lambda: {"x": randn(ROWS, COLUMNS), **{name: unset(*shape) for name, shape in outputs}, "n": COLUMNS, **more}


@triton.jit
def sum_kernel(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    r = tl.program_id(0)
    tl.store(o + r, tl.sum(tl.load(x + r * n + i, mask=i < n, other=0.0), 0))


rows("sum", sum_kernel, lambda x: x.sum(1), matrix_to(("o", (ROWS,))))


@triton.jit
def argmax_kernel(x, v, a, n, B: tl.constexpr):
    i = tl.arange(0, B)
    r = tl.program_id(0)
    data = tl.load(x + r * n + i, mask=i < n, other=-float("inf"))
    best, at = tl.max(data, 0, return_indices=True)
    tl.store(v + r, best)
    tl.store(a + r, at)


rows(
    "argmax",
    argmax_kernel,
    lambda x: {"v": x.max(1).values, "a": x.argmax(1).int()},
    lambda: {
        "x": randn(ROWS, COLUMNS),
        "v": unset(ROWS),
        "a": unset(ROWS, dtype=torch.int32),
        "n": COLUMNS,
    },
)


@triton.jit
def softmax_kernel(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    r = tl.program_id(0)
    v = tl.load(x + r * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + r * n + i, e / tl.sum(e, 0), mask=i < n)


rows("softmax", softmax_kernel, lambda x: x.softmax(1), matrix_to(("o", (ROWS, COLUMNS))))


@triton.jit
def layer_norm_kernel(x, w, b, o, n, eps, B: tl.constexpr):
    r = tl.program_id(0)
    total = tl.zeros((B,), tl.float32)
    square = tl.zeros((B,), tl.float32)
    for k in range(0, n, B):
        i = k + tl.arange(0, B)
        v = tl.load(x + r * n + i, mask=i < n, other=0.0)
        total += v
        square += v * v
    mean = tl.sum(total, 0) / n
    scale = tl.rsqrt(tl.sum(square, 0) / n - mean * mean + eps)
    for k in range(0, n, B):
        i = k + tl.arange(0, B)
        m = i < n
        v = (tl.load(x + r * n + i, mask=m) - mean) * scale
        tl.store(o + r * n + i, v * tl.load(w + i, mask=m) + tl.load(b + i, mask=m), mask=m)


add(
    Case(
        "layer_norm",
        layer_norm_kernel,
        lambda: {
            "x": randn(ROWS, COLUMNS),
            "w": randn(COLUMNS),
            "b": randn(COLUMNS, seed=2),
            "o": unset(ROWS, COLUMNS),
            "n": COLUMNS,
            "eps": 1e-5,
        },
        lambda meta: (ROWS,),
        configs(B=[64, 128, 256, 512]),
        lambda x, w, b: torch.nn.functional.layer_norm(x, (COLUMNS,), w, b),
    )
)


@triton.jit
def rms_kernel(x, w, o, n, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + r * n + i, mask=i < n, other=0.0).to(tl.float32)
    s = 1 / tl.sqrt(tl.sum(v * v, 0) / n + 1e-6)
    tl.store(o + r * n + i, v * s * tl.load(w + i, mask=i < n), mask=i < n)


rows(
    "rms_norm_fp16",
    rms_kernel,
    lambda x, w: (x.float() * (x.float().pow(2).mean(1, keepdim=True) + 1e-6).rsqrt() * w).half(),
    lambda: {
        "x": randn(ROWS, COLUMNS, dtype=torch.float16),
        "w": randn(COLUMNS),
        "o": unset(ROWS, COLUMNS, dtype=torch.float16),
        "n": COLUMNS,
    },
)


@triton.jit
def cumsum_kernel(x, o, n, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    tl.store(o + r * n + i, tl.cumsum(tl.load(x + r * n + i, mask=i < n, other=0.0), 0), mask=i < n)


rows("cumsum", cumsum_kernel, lambda x: x.cumsum(1), matrix_to(("o", (ROWS, COLUMNS))))


@triton.jit
def combine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def recurrence_kernel(x, o, n, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + r * n + i, mask=i < n, other=0.0)
    _, h = tl.associative_scan((tl.full((B,), 0.9, tl.float32), v), 0, combine)
    tl.store(o + r * n + i, h, mask=i < n)


def recurrence(x):
    out, state = [], torch.zeros(ROWS)
    for column in x.unbind(1):
        state = 0.9 * state + column
        out.append(state)
    return torch.stack(out, 1)


rows("recurrence", recurrence_kernel, recurrence, matrix_to(("o", (ROWS, COLUMNS))))


@triton.jit
def sort_kernel(x, o, n, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + r * n + i, mask=i < n, other=float("inf"))
    tl.store(o + r * n + i, tl.sort(v), mask=i < n)


add(
    Case(
        "sort",
        sort_kernel,
        lambda: {"x": randn(4, 100), "o": unset(4, 100), "n": 100},
        lambda meta: (4,),
        configs(B=[128, 128, 256, 128]),
        lambda x: x.sort(1).values,
    )
)


@triton.jit
def column_kernel(x, o, m, n, BM: tl.constexpr, BN: tl.constexpr):
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BN,), tl.float32)
    for k in range(0, m, BM):
        i = k + tl.arange(0, BM)
        mask = (i < m)[:, None] & (j < n)[None, :]
        total += tl.sum(tl.load(x + i[:, None] * n + j[None, :], mask=mask, other=0.0), 0)
    tl.store(o + j, total, mask=j < n)


add(
    Case(
        "column_sum",
        column_kernel,
        lambda: {"x": randn(90, 130), "o": unset(130), "m": 90, "n": 130},
        lambda meta: (cdiv(130, meta["BN"]),),
        configs(BM=[16, 32, 16, 32], BN=[16, 32, 64, 64]),
        lambda x: x.sum(0),
    )
)


@triton.jit
def welford_kernel(x, o, n, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < n
    v = tl.load(x + r * n + i, mask=m, other=0.0)
    mean = tl.sum(v, 0) / n
    d = tl.where(m, v - mean, 0.0)
    tl.store(o + r, tl.sum(d * d, 0) / (n - 1))


rows("variance", welford_kernel, lambda x: x.var(1), matrix_to(("o", (ROWS,))))


@triton.jit
def cross_entropy_kernel(x, y, o, n, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + r * n + i, mask=i < n, other=-float("inf"))
    top = tl.max(v, 0)
    total = tl.log(tl.sum(tl.exp(v - top), 0)) + top
    tl.store(o + r, total - tl.load(x + r * n + tl.load(y + r)))


rows(
    "cross_entropy",
    cross_entropy_kernel,
    lambda x, y: torch.nn.functional.cross_entropy(x, y, reduction="none"),
    lambda: {
        "x": randn(ROWS, COLUMNS),
        "y": torch.arange(ROWS, dtype=torch.int64) * 7,
        "o": unset(ROWS),
        "n": COLUMNS,
    },
)
