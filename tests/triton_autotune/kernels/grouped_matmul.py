"""Matmul whose blocks go through groups of rows, so that they share what is in L2."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 4}, num_warps=2, num_stages=2),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 4}, num_warps=4, num_stages=2),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 1}, num_warps=4, num_stages=3),
]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"])
@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * columns
    first = pid // in_group * GROUP_M
    size = min(rows - first, GROUP_M)
    pid_m = first + (pid % in_group) % size
    pid_n = (pid % in_group) // size
    at_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    at_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    at_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + at_m[:, None] * stride_am + at_k[None, :] * stride_ak
    b_ptrs = b_ptr + at_k[:, None] * stride_bk + at_n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=(at_m[:, None] < M) & (at_k[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(at_k[:, None] < left) & (at_n[None, :] < N), other=0.0)
        total = tl.dot(a, b, total)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    inside = (at_m[:, None] < M) & (at_n[None, :] < N)
    tl.store(c_ptr + at_m[:, None] * stride_cm + at_n[None, :] * stride_cn, total.to(tl.float16), mask=inside)


def arguments(a, b, c):
    (m, k), n = a.shape, b.shape[1]
    return (a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride())


def grid(meta):
    return (triton.cdiv(meta["M"], meta["BLOCK_M"]) * triton.cdiv(meta["N"], meta["BLOCK_N"]),)


def made(m, n, k):
    torch.manual_seed(0)
    return torch.randn(m, k, dtype=torch.float16), torch.randn(k, n, dtype=torch.float16), torch.zeros(m, n).half()


def calls():
    return [(matmul, grid, arguments(*made(96, 128, 64)), {})]


def inputs(M, N, K):
    return {"grid": grid, **dict(zip(matmul.arg_names, arguments(*made(M, N, K)), strict=False))}


def reference(a_ptr, b_ptr):
    return (a_ptr.float() @ b_ptr.float()).half()
