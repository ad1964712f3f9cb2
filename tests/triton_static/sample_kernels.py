"""Triton kernels in the styles people write, for tests that compile without a GPU."""

import triton
import triton.language as tl

SCALE: tl.constexpr = tl.constexpr(2)


@triton.jit
def product(
    a_at, b_at, c_at, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_tile = a_at + rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_tile = b_at + depth[:, None] * stride_bk + columns[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BLOCK_K)):
        total = tl.dot(tl.load(a_tile), tl.load(b_tile), total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    c_tile = c_at + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    tl.store(c_tile, total.to(tl.float16), mask=(rows[:, None] < M) & (columns[None, :] < N))


PRODUCT = "*fp16,*fp16,*fp16,256,256,256,256,1,256,1,256,1"

tuned = triton.autotune(
    [
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}, num_warps=4, num_stages=2),
        triton.Config({"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 64}, num_warps=2, num_stages=4),
    ],
    key=["M", "N", "K"],
)(product)


@triton.jit
def softmax(out_at, in_at, stride, count, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(in_at + row * stride + columns, mask=columns < count, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_at + row * stride + columns, x / tl.sum(x, axis=0), mask=columns < count)


@triton.jit
def summed(out_at, in_at, BLOCK: tl.constexpr):
    x = tl.load(in_at + tl.arange(0, BLOCK))
    tl.store(out_at, tl.sum(x, axis=0))


@triton.jit
def _scores(total, q, k_at, rows, depth, COLUMNS: tl.constexpr):
    k = tl.load(k_at + depth[:, None] + rows[None, :] * COLUMNS)
    return total + tl.dot(q, k)


@triton.jit
def scores(q_at, k_at, out_at, count, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TWICE: tl.constexpr):
    depth = tl.arange(0, COLUMNS)
    here = tl.arange(0, ROWS)
    q = tl.load(q_at + here[:, None] * COLUMNS + depth[None, :])
    total = tl.zeros([ROWS, ROWS * SCALE // 2], dtype=tl.float32)
    for first in range(0, count, ROWS):
        total = _scores(total, q, k_at, first + here, depth, COLUMNS)
        if TWICE:
            total = _scores(total, q, k_at, first + here, depth, COLUMNS)
    tl.store(out_at + here[:, None] * ROWS + here[None, :], total)


@triton.heuristics({"EVEN": lambda args: args["count"] % args["BLOCK"] == 0})
@triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["count"])
@triton.jit
def added_outside(x_at, y_at, count, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(y_at + at, tl.load(x_at + at) + 1)
    else:
        tl.store(y_at + at, tl.load(x_at + at, mask=at < count) + 1, mask=at < count)


@triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["count"])
@triton.heuristics({"EVEN": lambda args: args["count"] % args["BLOCK"] == 0})
@triton.jit
def added(x_at, y_at, count, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(y_at + at, tl.load(x_at + at) + 1)
    else:
        tl.store(y_at + at, tl.load(x_at + at, mask=at < count) + 1, mask=at < count)


def prebuild_args():
    """Calls like the real ones, by kernel."""
    return {"added": ["*fp32", "*fp32", 1024]}
