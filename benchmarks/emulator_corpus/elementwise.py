"""Kernels that compute each element from a few others."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from emulator_corpus.case import Case, add, cdiv, configs, randn, unset

N = 3001
BLOCKS = [128, 256, 512, 1024]


def linear(meta):
    return (cdiv(N, meta["B"]),)


def plain(name, function, reference, inputs, **knobs):
    add(Case(name, function, inputs, linear, configs(B=BLOCKS, **knobs), reference))


@triton.jit
def add_kernel(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


plain("add", add_kernel, lambda x, y: x + y, lambda: {"x": randn(N), "y": randn(N, seed=1), "o": unset(N), "n": N})
plain(
    "add_bf16",
    add_kernel,
    lambda x, y: x + y,
    lambda: {
        "x": randn(N, dtype=torch.bfloat16),
        "y": randn(N, dtype=torch.bfloat16, seed=1),
        "o": unset(N, dtype=torch.bfloat16),
        "n": N,
    },
)


@triton.jit
def gelu_kernel(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0)
    u = 0.7978845608 * (v + 0.044715 * v * v * v)
    t = 2.0 / (1.0 + tl.exp(-2.0 * u)) - 1.0
    tl.store(o + i, 0.5 * v * (1.0 + t), mask=i < n)


plain(
    "gelu",
    gelu_kernel,
    lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    lambda: {"x": randn(N), "o": unset(N), "n": N},
)


@triton.jit
def trig_kernel(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=1.0)
    r = tl.sin(v) * tl.cos(v) + tl.sqrt(tl.abs(v)) + tl.log(tl.abs(v) + 1.0) + tl.exp2(-v * v) + tl.rsqrt(v * v + 1.0)
    tl.store(o + i, r + tl.floor(v) - tl.ceil(v) + tl.erf(v), mask=i < n)


plain(
    "special_functions",
    trig_kernel,
    lambda x: (
        x.sin() * x.cos()
        + x.abs().sqrt()
        + (x.abs() + 1).log()
        + torch.exp2(-x * x)
        + (x * x + 1).rsqrt()
        + x.floor()
        - x.ceil()
        + x.erf()
    ),
    lambda: {"x": randn(N), "o": unset(N), "n": N},
)


@triton.jit
def integer_kernel(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i, mask=i < n, other=1)
    b = tl.load(y + i, mask=i < n, other=1)
    r = (a // b) * 3 + a % b + (a ^ b) - (a & 255) + (a >> 3) + (b << 2) + tl.umulhi(a, b)
    tl.store(o + i, r, mask=i < n)


def integers(x, y):
    a, b = x.long(), y.long()
    quotient = torch.div(a, b, rounding_mode="trunc")
    high = (a * b) >> 32
    r = quotient * 3 + (a - quotient * b) + (a ^ b) - (a & 255) + (a >> 3) + (b << 2) + high
    return ((r + (1 << 31)) % (1 << 32) - (1 << 31)).to(torch.int32)


plain(
    "integers",
    integer_kernel,
    integers,
    lambda: {
        "x": torch.randint(0, 1 << 30, (N,), dtype=torch.int32, generator=torch.Generator().manual_seed(1)),
        "y": torch.randint(1, 1 << 20, (N,), dtype=torch.int32, generator=torch.Generator().manual_seed(2)),
        "o": unset(N, dtype=torch.int32),
        "n": N,
    },
)


@triton.jit
def cast_kernel(x, h, b, c, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(h + i, v.to(tl.float16), mask=i < n)
    tl.store(b + i, v.to(tl.bfloat16), mask=i < n)
    tl.store(c + i, (v * 10).to(tl.int8), mask=i < n)


plain(
    "casts",
    cast_kernel,
    lambda x: {"h": x.half(), "b": x.bfloat16(), "c": (x * 10).to(torch.int8)},
    lambda: {
        "x": randn(N),
        "h": unset(N, dtype=torch.float16),
        "b": unset(N, dtype=torch.bfloat16),
        "c": unset(N, dtype=torch.int8),
        "n": N,
    },
)


@triton.jit
def fp8_kernel(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0).to(tl.float8e5)
    tl.store(o + i, v.to(tl.float32) * 2, mask=i < n)


plain(
    "fp8_round_trip",
    fp8_kernel,
    lambda x: x.to(torch.float8_e5m2).float() * 2,
    lambda: {"x": randn(N), "o": unset(N), "n": N},
)


@triton.jit
def dropout_kernel(x, o, n, p, seed, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    keep = tl.rand(seed, i) > p
    kept = tl.where(keep, v / (1 - p), 0.0)
    again = tl.rand(seed, i) > p
    tl.store(o + i, tl.where(keep == again, kept * 0 + v, 0.0), mask=i < n)


plain(
    "dropout_twice",
    dropout_kernel,
    lambda x: x,
    lambda: {"x": randn(N), "o": unset(N), "n": N, "p": 0.3, "seed": 1234},
)


@triton.jit
def clamp_kernel(x, o, n, low, high, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(o + i, tl.minimum(tl.maximum(v, low), high), mask=i < n)


plain(
    "clamp_fp16",
    clamp_kernel,
    lambda x: x.clamp(-0.5, 0.75),
    lambda: {"x": randn(N, dtype=torch.float16), "o": unset(N, dtype=torch.float16), "n": N, "low": -0.5, "high": 0.75},
)


@triton.jit
def strided_kernel(x, o, n, step, B: tl.constexpr):
    for start in range(tl.program_id(0) * B, n, tl.num_programs(0) * B):
        i = start + tl.arange(0, B)
        tl.store(o + i, tl.load(x + i * step, mask=i < n) * 2, mask=i < n)


add(
    Case(
        "grid_stride",
        strided_kernel,
        lambda: {"x": randn(3 * N), "o": unset(N), "n": N, "step": 3},
        lambda meta: (2,),
        configs(B=[64, 128, 256, 512]),
        lambda x: x[::3] * 2,
    )
)


@triton.jit
def double_kernel(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=1.0)
    tl.store(o + i, v * v + tl.sqrt(v) / (v + 1), mask=i < n)


plain(
    "double",
    double_kernel,
    lambda x: x * x + x.sqrt() / (x + 1),
    lambda: {"x": randn(N, dtype=torch.float64).abs(), "o": unset(N, dtype=torch.float64), "n": N},
)
