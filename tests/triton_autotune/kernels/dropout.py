"""Dropout whose mask comes from a seed."""

import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": size}, num_warps=2) for size in (64, 128, 512)], key=["n"])
@triton.jit(do_not_specialize=["seed"])
def dropout(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    kept = tl.rand(seed, at) > p
    tl.store(out_ptr + at, tl.where(kept, x / (1 - p), 0.0), mask=at < n)


def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def calls():
    x = torch.randn(1000)
    return [(dropout, grid, (x, torch.zeros_like(x), 1000, 0.5, 123), {})]


def inputs(n):
    torch.manual_seed(0)
    x = torch.randn(n)
    return {"grid": grid, "x_ptr": x, "out_ptr": torch.zeros_like(x), "n": n, "p": 0.0, "seed": 7}


def reference(x_ptr):
    return x_ptr
