"""Matmul of rows gathered by token, each block with the weights of its expert."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_N": 32, "BLOCK_K": 32}, num_warps=2, num_stages=2),
        triton.Config({"BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=2),
    ],
    key=["N", "K"],
)
@triton.jit
def experts(
    x_ptr, w_ptr, out_ptr, tokens_ptr, experts_ptr, count, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    tokens = tl.load(tokens_ptr + block * BLOCK_M + tl.arange(0, BLOCK_M))
    expert = tl.load(experts_ptr + block)
    at_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    real = tokens[:, None] < count
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        at_k = k * BLOCK_K + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + tokens[:, None] * K + at_k[None, :], mask=real & (at_k[None, :] < K), other=0.0)
        inside = (at_k[:, None] < K) & (at_n[None, :] < N)
        w = tl.load(w_ptr + expert * N * K + at_n[None, :] * K + at_k[:, None], mask=inside, other=0.0)
        total = tl.dot(x, w, total)
    tl.store(out_ptr + tokens[:, None] * N + at_n[None, :], total.to(tl.float16), mask=real & (at_n[None, :] < N))


def made(n, k, each=16, many=3):
    torch.manual_seed(0)
    count = each * many
    x, w = torch.randn(count, k).half(), torch.randn(many, n, k).half()
    tokens = torch.randperm(count).int()
    return x, w, torch.zeros(count, n).half(), tokens, torch.arange(many).int(), count, n, k


def calls():
    def grid(meta):
        return 3, triton.cdiv(meta["N"], meta["BLOCK_N"])

    return [(experts, grid, made(64, 64), {"BLOCK_M": 16})]


def inputs(N, K):
    def grid(meta):
        return 3, triton.cdiv(N, meta["BLOCK_N"])

    return {"grid": grid, **dict(zip(experts.arg_names, made(N, K), strict=False)), "BLOCK_M": 16}


def reference(x_ptr, w_ptr, out_ptr, tokens_ptr, experts_ptr):
    for block, expert in enumerate(experts_ptr.tolist()):
        tokens = tokens_ptr[16 * block : 16 * block + 16].long()
        out_ptr[tokens] = (x_ptr[tokens].float() @ w_ptr[expert].float().T).half()
    return out_ptr
