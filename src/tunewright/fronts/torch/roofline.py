"""Roofline: what this machine can do at best, measured, and what a kernel would then need at least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from time import perf_counter
from typing import Any

import torch

from tunewright.fronts.torch.reading import sizes
from tunewright.report.journey import VIEWS, Operation, Roof

LADDER = (1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26)
"""Working sets in bytes, since what lies in a cache is read faster than what does not."""

SIDE = 384
_REPEATS, _BURST = 60, 3e-4
"""Many short bursts: on a busy machine some of them are not interrupted."""


def measured(dtype: Any = torch.float32) -> Roof:
    """The bandwidth of this machine by working set, and its peak, with as many threads as PyTorch uses now."""
    left, right = torch.rand(SIDE, SIDE).to(dtype), torch.rand(SIDE, SIDE).to(dtype)
    out = torch.empty(SIDE, SIDE, dtype=dtype)
    peak = 2 * SIDE**3 / _shortest(lambda: torch.mm(left, right, out=out))
    speeds = []
    for size in LADDER:
        source, target = torch.ones(size // 8), torch.empty(size // 8)
        speeds.append((size, size / _shortest(lambda: target.copy_(source))))  # noqa: B023 - called at once
    return Roof(peak, tuple(speeds))


def better(one: Roof, other: Roof) -> Roof:
    """What the machine has shown that it can do, of two measurements: other work only ever slows it."""
    pairs = zip(one.bandwidth, other.bandwidth, strict=True)
    return Roof(max(one.peak, other.peak), tuple((size, max(speed, again)) for (size, speed), (_, again) in pairs))


def _shortest(run: Any) -> float:
    """The least time of a few runs, each long enough to be read: what the machine can do, not does on average."""
    run()
    best = float("inf")
    for _ in range(_REPEATS):
        count, began = 0, perf_counter()
        while (taken := perf_counter() - began) < _BURST or not count:
            run()
            count += 1
        best = min(best, taken / count)
    return best


def flops(operations: Sequence[Operation], shapes: Mapping[str, str]) -> float:
    """The arithmetic of some operations: products by their sizes, anything else one for each element of its result."""
    return sum(map(float, (_flops(one, shapes) for one in operations)))


def _flops(one: Operation, shapes: Mapping[str, str]) -> float:
    result = prod(sizes(one.result)) if one.result else 0
    read = [sizes(shapes.get(name, "")) for name in one.reads]
    if one.call in ("mm", "bmm", "addmm", "baddbmm", "matmul"):
        matrices = [shape for shape in read if len(shape) >= 2]
        left = matrices[-2] if len(matrices) > 1 else matrices[0] if matrices else [0]
        return 2.0 * result * left[-1]
    if "linear" in one.call and read:
        return 2.0 * result * read[0][-1]
    if one.call == "convolution" and len(read) > 1:
        return 2.0 * result * prod(read[1][1:])
    if "scaled_dot_product" in one.call and len(read) > 2:
        query, key = read[0], read[1]
        return 4.0 * prod(query) * key[-2]
    if one.call in VIEWS:
        return 0.0
    return float(max([result, *(prod(shape) for shape in read)], default=0))


def least(roof: Roof, moved: int, work: float) -> tuple[float, str]:
    """The time that moving so many bytes and doing so much arithmetic takes at least, and which of them it is."""
    memory, arithmetic = moved / roof.speed(moved), work / roof.peak
    return (memory, "memory") if memory >= arithmetic else (arithmetic, "arithmetic")
