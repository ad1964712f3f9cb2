"""Hooks around launches: the autotuner's own, and one that belongs to a config."""

import torch
import triton
import triton.language as tl

SEEN = []


def before(named, reset_only=False):
    SEEN.append("reset" if reset_only else "before")
    named["out_ptr"].zero_()


def after(named, exception):
    SEEN.append("after" if exception is None else type(exception).__name__)


def chosen(named):
    SEEN.append(f"config {named['BLOCK']}")


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 64}, num_warps=1, pre_hook=chosen),
        triton.Config({"BLOCK": 128}, num_warps=2, pre_hook=chosen),
    ],
    key=["n"],
    pre_hook=before,
    post_hook=after,
)
@triton.jit
def count_positive(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.atomic_add(out_ptr, tl.sum((x > 0).to(tl.int32), axis=0))


def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def calls():
    x = torch.randn(500)
    return [(count_positive, grid, (x, torch.zeros(1, dtype=torch.int32), 500), {})]
