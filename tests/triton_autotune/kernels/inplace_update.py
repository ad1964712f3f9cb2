"""A step of momentum: parameters and their momenta are changed where they are."""

import torch
import triton
import triton.language as tl


@triton.jit
def moved(momentum, gradient, BETA: tl.constexpr):
    return BETA * momentum + gradient


@triton.autotune(
    configs=[triton.Config({"BLOCK": size}, num_warps=warps) for size, warps in ((64, 1), (256, 2), (512, 4))],
    key=["n"],
    restore_value=["p_ptr", "m_ptr"],
)
@triton.jit
def step(p_ptr, m_ptr, g_ptr, n, rate, BETA: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    momentum = moved(tl.load(m_ptr + at, mask=inside), tl.load(g_ptr + at, mask=inside), BETA)
    here = p_ptr + at
    tl.store(m_ptr + at, momentum, mask=inside)
    tl.store(here, tl.load(here, mask=inside) - rate * momentum, mask=inside)


def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def arguments(n):
    torch.manual_seed(0)
    return torch.randn(n), torch.randn(n), torch.randn(n), n, 0.1


def calls():
    return [(step, grid, arguments(1000), {"BETA": 0.9})]


def inputs(n):
    return {"grid": grid, **dict(zip(step.arg_names, arguments(n), strict=False)), "BETA": 0.9}


def reference(p_ptr, m_ptr, g_ptr, rate):
    momentum = 0.9 * m_ptr + g_ptr
    return p_ptr - rate * momentum, momentum
