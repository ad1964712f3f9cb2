"""Heuristics below the autotuner: they see what it chose."""

import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": size}, num_warps=2) for size in (64, 128, 256)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def scale(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + at, factor * tl.load(x_ptr + at))
    else:
        tl.store(out_ptr + at, factor * tl.load(x_ptr + at, mask=at < n), mask=at < n)


def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def calls():
    x = torch.randn(640)
    return [(scale, grid, (x, torch.zeros_like(x), 640, 3.0), {})]


def inputs(n):
    torch.manual_seed(0)
    x = torch.randn(n)
    return {"grid": grid, "x_ptr": x, "out_ptr": torch.zeros_like(x), "n": n, "factor": 3.0}


def reference(x_ptr, factor):
    return factor * x_ptr
