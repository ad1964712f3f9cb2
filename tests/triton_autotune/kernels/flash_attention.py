"""Attention by online softmax, one block of queries at a time; configs that do not suit the length are pruned."""

import torch
import triton
import triton.language as tl


def fitting(configs, named_args, **kwargs):
    return [config for config in configs if config.kwargs["BLOCK_N"] <= named_args["LENGTH"]]


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 32}, num_warps=2, num_stages=2),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_warps=4, num_stages=2),
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 1024}, num_warps=4, num_stages=1),
    ],
    key=["LENGTH", "HEAD"],
    prune_configs_by={"early_config_prune": fitting},
)
@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, out_ptr, scale, LENGTH,
    HEAD: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    offset = tl.program_id(1) * LENGTH * HEAD
    at_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    at_d = tl.arange(0, HEAD)
    rows = at_m[:, None] < LENGTH
    q = tl.load(q_ptr + offset + at_m[:, None] * HEAD + at_d[None, :], mask=rows, other=0.0)
    highest = tl.full([BLOCK_M], -1e30, dtype=tl.float32)
    weight = tl.zeros([BLOCK_M], dtype=tl.float32)
    total = tl.zeros([BLOCK_M, HEAD], dtype=tl.float32)
    for start in range(0, LENGTH, BLOCK_N):
        at_n = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + offset + at_n[None, :] * HEAD + at_d[:, None], mask=at_n[None, :] < LENGTH, other=0.0)
        v = tl.load(v_ptr + offset + at_n[:, None] * HEAD + at_d[None, :], mask=at_n[:, None] < LENGTH, other=0.0)
        score = tl.dot(q, k) * scale
        seen = at_n[None, :] < LENGTH
        if CAUSAL:
            seen = seen & (at_m[:, None] >= at_n[None, :])
        score = tl.where(seen, score, -1e30)
        higher = tl.maximum(highest, tl.max(score, 1))
        p = tl.exp(score - higher[:, None])
        fade = tl.exp(highest - higher)
        weight = weight * fade + tl.sum(p, 1)
        total = total * fade[:, None] + tl.dot(p.to(tl.float16), v)
        highest = higher
    out = total / weight[:, None]
    tl.store(out_ptr + offset + at_m[:, None] * HEAD + at_d[None, :], out.to(tl.float16), mask=rows)


def arguments(heads, length, head):
    torch.manual_seed(0)
    q, k, v = (torch.randn(heads, length, head).half() for _ in range(3))
    return q, k, v, torch.zeros_like(q), head**-0.5, length


def calls():
    def grid(meta):
        return triton.cdiv(meta["LENGTH"], meta["BLOCK_M"]), 2

    return [(attention, grid, arguments(2, 128, 32), {"HEAD": 32, "CAUSAL": True})]


def inputs(length):
    def grid(meta):
        return triton.cdiv(length, meta["BLOCK_M"]), 2

    named = dict(zip(attention.arg_names, arguments(2, length, 16), strict=False))
    return {"grid": grid, **named, "HEAD": 16, "CAUSAL": True}


def reference(q_ptr, k_ptr, v_ptr, scale):
    score = q_ptr.float() @ k_ptr.float().transpose(1, 2) * scale
    later = torch.ones(score.shape[-2:], dtype=torch.bool).triu(1)
    return (torch.softmax(score.masked_fill(later, -torch.inf), -1) @ v_ptr.float()).half()
