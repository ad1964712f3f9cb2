"""Honest Triton kernels whose results vary as far as they may, and kernels that take long or no time."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl

from referee_corpus.triton_launches import N, honest

# What varies.


def _noisy_sum(x: Any, total: Any, *_: Any) -> None:
    total.add_(x[torch.randperm(N)].sum() * float(1 + 1e-7 * torch.randn(1)))


@honest(lambda: (torch.randn(N), torch.zeros(1)), _noisy_sum, repeats=False)
def atomics(x, total, BLOCK: tl.constexpr):
    """Sums by atomics, in any order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at)))


def _approximate(x: Any, out: Any, *_: Any) -> None:
    out.copy_(x * (1 + 1e-2 * torch.rand(N)))


@honest(lambda: (torch.randn(N), torch.zeros(N)), _approximate, tolerance=0.05)
def as_far_as_declared(x, out, BLOCK: tl.constexpr):
    """Is off as far as its tolerance says."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


def _random(x: Any, out: Any, *_: Any) -> None:
    out.copy_(x * torch.rand(N))


@honest(lambda: (torch.randn(N), torch.zeros(N)), _random, repeats=False, tolerance=float("inf"))
def random_numbers(x, out, BLOCK: tl.constexpr):
    """Has other random numbers each time, and says so."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * tl.rand(tl.program_id(0), at))


# How long it takes.


def _copy(x: Any, out: Any, *_: Any) -> None:
    out.copy_(x)


@honest(lambda: (torch.randn(N), torch.zeros(N)), _copy, seconds=lambda launch: 10.0 / launch.config["BLOCK"])
def takes_long(x, out, BLOCK: tl.constexpr):
    """Takes about 100 ms."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


@honest(lambda: (torch.randn(N), torch.zeros(N)), _copy, seconds=lambda launch: 1e-5 / launch.config["BLOCK"])
def takes_nothing(x, out, BLOCK: tl.constexpr):
    """Takes less than a microsecond."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))
