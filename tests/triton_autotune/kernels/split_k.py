"""Matmul with the sum split over blocks that add up in memory, which must start from zero."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 32, "SPLIT_K": 1}, num_warps=2, num_stages=2),
        triton.Config({"BLOCK": 32, "SPLIT_K": 2}, num_warps=4, num_stages=2),
        triton.Config({"BLOCK": 32, "SPLIT_K": 4}, num_warps=2, num_stages=1),
    ],
    key=["M", "N", "K"],
    reset_to_zero=["c_ptr"],
)
@triton.jit
def split_matmul(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr, SPLIT_K: tl.constexpr):
    at_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at_k = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BLOCK * SPLIT_K)):
        a_inside = (at_m[:, None] < M) & (at_k[None, :] < K)
        b_inside = (at_k[:, None] < K) & (at_n[None, :] < N)
        a = tl.load(a_ptr + at_m[:, None] * K + at_k[None, :], mask=a_inside, other=0.0)
        b = tl.load(b_ptr + at_k[:, None] * N + at_n[None, :], mask=b_inside, other=0.0)
        total += tl.dot(a, b)
        at_k += BLOCK * SPLIT_K
    inside = (at_m[:, None] < M) & (at_n[None, :] < N)
    tl.atomic_add(c_ptr + at_m[:, None] * N + at_n[None, :], total, mask=inside)


def grid(meta):
    return triton.cdiv(meta["M"], meta["BLOCK"]), triton.cdiv(meta["N"], meta["BLOCK"]), meta["SPLIT_K"]


def arguments(m, n, k):
    torch.manual_seed(0)
    return torch.randn(m, k).half(), torch.randn(k, n).half(), torch.zeros(m, n), m, n, k


def calls():
    return [(split_matmul, grid, arguments(64, 64, 128), {})]


def inputs(M, N, K):
    return {"grid": grid, **dict(zip(split_matmul.arg_names, arguments(M, N, K), strict=False))}


def reference(a_ptr, b_ptr):
    return a_ptr.float() @ b_ptr.float()
