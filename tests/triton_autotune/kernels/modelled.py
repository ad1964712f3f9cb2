"""A model of the time picks which configs are worth trying."""

import torch
import triton
import triton.language as tl


def modelled(BLOCK, num_warps, n, **rest):
    return abs(BLOCK / num_warps - 64) + n / 1e9


@triton.autotune(
    configs=[triton.Config({"BLOCK": size}, num_warps=warps) for size in (64, 128, 256) for warps in (1, 2, 4)],
    key=["n"],
    prune_configs_by={"perf_model": modelled, "top_k": 3},
)
@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, total, mask=at < n)


def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def arguments(n):
    torch.manual_seed(0)
    return torch.randn(n), torch.randn(n), torch.zeros(n), n


def calls():
    return [(add, grid, arguments(1000), {})]


def inputs(n):
    return {"grid": grid, **dict(zip(add.arg_names, arguments(n), strict=False))}


def reference(x_ptr, y_ptr):
    return x_ptr + y_ptr
