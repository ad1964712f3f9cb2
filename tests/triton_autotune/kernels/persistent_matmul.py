"""Matmul by as many blocks as there are processors, each going from tile to tile."""

import torch
import triton
import triton.language as tl

PROCESSORS = 8


@triton.jit
def place(tile, columns):
    return tile // columns, tile % columns


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}, num_warps=2, num_stages=2),
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=2),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def persistent(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    columns = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * columns, BLOCKS):
        pid_m, pid_n = place(tile, columns)
        at_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        at_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, tl.cdiv(K, BLOCK_K)):
            at_k = k * BLOCK_K + tl.arange(0, BLOCK_K)
            a_inside = (at_m[:, None] < M) & (at_k[None, :] < K)
            b_inside = (at_k[:, None] < K) & (at_n[None, :] < N)
            a = tl.load(a_ptr + at_m[:, None] * K + at_k[None, :], mask=a_inside, other=0.0)
            b = tl.load(b_ptr + at_k[:, None] * N + at_n[None, :], mask=b_inside, other=0.0)
            total = tl.dot(a, b, total)
        inside = (at_m[:, None] < M) & (at_n[None, :] < N)
        tl.store(c_ptr + at_m[:, None] * N + at_n[None, :], total.to(tl.float16), mask=inside)


def arguments(m, n, k):
    torch.manual_seed(0)
    return torch.randn(m, k).half(), torch.randn(k, n).half(), torch.zeros(m, n).half(), m, n, k


def calls():
    return [(persistent, (PROCESSORS,), arguments(96, 96, 64), {"BLOCKS": PROCESSORS})]


def inputs(M, N, K):
    named = dict(zip(persistent.arg_names, arguments(M, N, K), strict=False))
    return {"grid": (PROCESSORS,), **named, "BLOCKS": PROCESSORS}


def reference(a_ptr, b_ptr):
    return (a_ptr.float() @ b_ptr.float()).half()
