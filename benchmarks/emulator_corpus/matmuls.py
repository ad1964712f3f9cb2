"""Matrix products: dtypes, layouts, batches, split sums, descriptors, fused ends."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from emulator_corpus.case import Case, add, cdiv, configs, randn, unset

M, N, K = 80, 96, 64
TILES = {"BM": [16, 32, 64, 64], "BN": [16, 32, 32, 64], "BK": [16, 32, 32, 64]}


def tiles(meta):
    return cdiv(M, meta["BM"]), cdiv(N, meta["BN"])


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr, PREC: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), ACC)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (k + s)[None, :], mask=(m[:, None] < M) & (k[None, :] + s < K), other=0)
        y = tl.load(b + (k + s)[:, None] * N + n[None, :], mask=(n[None, :] < N) & (k[:, None] + s < K), other=0)
        acc = tl.dot(x, y, acc, input_precision=PREC, out_dtype=ACC)
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def product(name, dtype, out, acc=tl.float32, precision="ieee", small_k=16, transposed=False):
    def inputs():
        if dtype == torch.int8:
            source = torch.Generator().manual_seed(3)
            a, b = (torch.randint(-128, 127, s, dtype=torch.int8, generator=source) for s in ((M, K), (K, N)))
        else:
            a, b = randn(M, K, dtype=dtype), randn(K, N, dtype=dtype, seed=1)
        return {"a": a, "b": b, "c": unset(M, N, dtype=out), "M": M, "N": N, "K": K}

    def reference(a, b):
        if dtype == torch.int8:
            return (a.int() @ b.int()).to(out)
        return (a.float() @ b.float()).to(out) if out != torch.float64 else a @ b

    knobs = {**TILES, "BK": [max(size, small_k) for size in TILES["BK"]]}
    add(
        Case(name, matmul_kernel, inputs, tiles, configs((2, 4, 4, 8), ACC=[acc], PREC=[precision], **knobs), reference)
    )


product("matmul_fp16", torch.float16, torch.float16)
product("matmul_bf16", torch.bfloat16, torch.float32)
product("matmul_fp32", torch.float32, torch.float32)
product("matmul_int8", torch.int8, torch.int32, tl.int32, small_k=32)


@triton.jit
def tf32_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (k + s)[None, :], mask=m[:, None] < M, other=0.0)
        y = tl.load(b + (k + s)[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0)
        acc = tl.dot(x, y, acc, input_precision="tf32")
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def halves_of_integers(*shape, seed=0):
    """Numbers that tf32 holds exactly."""
    return (randn(*shape, seed=seed) * 8).round() / 8


add(
    Case(
        "matmul_tf32",
        tf32_kernel,
        lambda: {
            "a": halves_of_integers(M, K), "b": halves_of_integers(K, N, seed=1), "c": unset(M, N),
            "M": M, "N": N, "K": K,
        },
        tiles,
        configs((2, 4, 4, 8), **TILES),
        lambda a, b: a @ b,
    )
)  # fmt: skip


@triton.jit
def transposed_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + (k + s)[None, :] * M + m[:, None], mask=m[:, None] < M, other=0.0)
        y = tl.load(b + n[:, None] * K + (k + s)[None, :], mask=n[:, None] < N, other=0.0)
        acc = tl.dot(x, tl.trans(y), acc)
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


add(
    Case(
        "matmul_transposed",
        transposed_kernel,
        lambda: {
            "a": randn(K, M, dtype=torch.float16), "b": randn(N, K, dtype=torch.float16, seed=1), "c": unset(M, N),
            "M": M, "N": N, "K": K,
        },
        tiles,
        configs((2, 4, 4, 8), **TILES),
        lambda a, b: a.float().T @ b.float().T,
    )
)  # fmt: skip


@triton.jit
def batched_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    z = tl.program_id(2)
    a += z * M * K
    b += z * K * N
    c += z * M * N
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (k + s)[None, :], mask=m[:, None] < M, other=0.0)
        y = tl.load(b + (k + s)[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


add(
    Case(
        "matmul_batched",
        batched_kernel,
        lambda: {
            "a": randn(3, 32, K, dtype=torch.float16), "b": randn(3, K, 48, dtype=torch.float16, seed=1),
            "c": unset(3, 32, 48), "M": 32, "N": 48, "K": K,
        },
        lambda meta: (cdiv(32, meta["BM"]), cdiv(48, meta["BN"]), 3),
        configs((2, 4, 4, 8), **TILES),
        lambda a, b: a.float() @ b.float(),
    )
)  # fmt: skip


@triton.jit
def split_k_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(tl.program_id(2) * BK, K, BK * SPLIT):
        x = tl.load(a + m[:, None] * K + (k + s)[None, :], mask=m[:, None] < M, other=0.0)
        y = tl.load(b + (k + s)[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0)
        acc = tl.dot(x, y, acc)
    tl.atomic_add(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


add(
    Case(
        "matmul_split_k",
        split_k_kernel,
        lambda: {
            "a": randn(M, K, dtype=torch.float16), "b": randn(K, N, dtype=torch.float16, seed=1),
            "c": torch.zeros(M, N), "M": M, "N": N, "K": K,
        },
        lambda meta: (*tiles(meta), 2),
        configs((2, 4, 4, 8), BM=[16, 32, 64, 64], BN=[16, 32, 32, 64], BK=[16, 32, 32, 16], SPLIT=[2]),
        lambda a, b: a.float() @ b.float(),
    )
)  # fmt: skip


@triton.jit
def grouped_kernel(a, b, bias, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = pid // (GROUP * columns) * GROUP
    size = min(rows - first, GROUP)
    pm = first + (pid % (GROUP * columns)) % size
    pn = (pid % (GROUP * columns)) // size
    m = (pm * BM + tl.arange(0, BM)) % M
    n = (pn * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    ap, bp = a + m[:, None] * K + k[None, :], b + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, tl.cdiv(K, BK)):
        x = tl.load(ap, mask=k[None, :] < K - s * BK, other=0.0)
        y = tl.load(bp, mask=k[:, None] < K - s * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        ap += BK
        bp += BK * N
    acc += tl.load(bias + n)[None, :]
    acc = tl.where(acc >= 0, acc, 0.01 * acc)
    om, on = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN)
    tl.store(c + om[:, None] * N + on[None, :], acc.to(tl.float16), mask=(om[:, None] < M) & (on[None, :] < N))


add(
    Case(
        "matmul_grouped_bias_relu",
        grouped_kernel,
        lambda: {
            "a": randn(M, K, dtype=torch.float16), "b": randn(K, N, dtype=torch.float16, seed=1), "bias": randn(N),
            "c": unset(M, N, dtype=torch.float16), "M": M, "N": N, "K": K,
        },
        lambda meta: (cdiv(M, meta["BM"]) * cdiv(N, meta["BN"]),),
        configs((2, 4, 4, 8), GROUP=[1, 2, 4, 8], **TILES),
        lambda a, b, bias: torch.nn.functional.leaky_relu(a.float() @ b.float() + bias, 0.01).half(),
    )
)  # fmt: skip


@triton.jit
def descriptor_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    ad = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    bd = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    cd = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        acc = tl.dot(ad.load([m, s]), bd.load([s, n]), acc)
    cd.store([m, n], acc.to(tl.float16))


add(
    Case(
        "matmul_descriptors",
        descriptor_kernel,
        lambda: {
            "a": randn(M, K, dtype=torch.float16), "b": randn(K, N, dtype=torch.float16, seed=1),
            "c": unset(M, N, dtype=torch.float16), "M": M, "N": N, "K": K,
        },
        tiles,
        configs((2, 4, 4, 8), **TILES),
        lambda a, b: (a.float() @ b.float()).half(),
    )
)  # fmt: skip


@triton.jit
def fp8_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (k + s)[None, :], mask=m[:, None] < M, other=0.0)
        y = tl.load(b + (k + s)[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


add(
    Case(
        "matmul_fp8",
        fp8_kernel,
        lambda: {
            "a": randn(M, K).to(torch.float8_e5m2), "b": randn(K, N, seed=1).to(torch.float8_e5m2), "c": unset(M, N),
            "M": M, "N": N, "K": K,
        },
        tiles,
        configs((2, 4, 4, 8), BM=[16, 32, 64, 64], BN=[16, 32, 32, 64], BK=[32, 32, 32, 64]),
        lambda a, b: a.float() @ b.float(),
    )
)  # fmt: skip


@triton.jit
def gemv_kernel(a, x, y, M, K, BM: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    total = tl.zeros((BM,), tl.float32)
    for s in range(0, K, BK):
        k = s + tl.arange(0, BK)
        v = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        total += tl.sum(v * tl.load(x + k, mask=k < K, other=0.0)[None, :], 1)
    tl.store(y + m, total, mask=m < M)


add(
    Case(
        "matrix_vector",
        gemv_kernel,
        lambda: {"a": randn(70, 200), "x": randn(200), "y": unset(70), "M": 70, "K": 200},
        lambda meta: (cdiv(70, meta["BM"]),),
        configs(BM=[8, 16, 16, 32], BK=[64, 64, 128, 32]),
        lambda a, x: a @ x,
    )
)
