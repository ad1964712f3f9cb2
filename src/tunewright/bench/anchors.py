"""Anchors: work that never changes, raced in every bout, so that runs of two days can be compared; and the roof."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tunewright.bench.work import Roof
from tunewright.measure.clock import HostTimer, visitor

SIDE, LOOKS = 512, 12
"""Of the products that show a peak; how often they are run."""

WIDE = 32 << 20
"""Bytes that no cache keeps for one core."""

HELD = (32 << 10, 512 << 10, 4 << 20, 64 << 20)
"""Bytes at which bandwidth is looked at: from what the nearest cache holds to what none does."""


def work(name: str) -> Callable[[], Any]:
    """An anchor: "dense" computes in cache, "wide" waits for memory."""
    if name == "dense":
        numbers = np.linspace(1.0, 2.0, 2048)
        return partial(np.sqrt, numbers, out=np.empty_like(numbers))
    source = np.ones(WIDE // 8)
    return partial(np.copyto, np.empty_like(source), source)


def roof(threads: int, dtypes: tuple[str, ...]) -> Roof:
    """The best that was seen: bytes copied or read, and operations of square products by numpy or torch, a second."""
    bandwidths = {}
    for nbytes in HELD:
        one, other = np.ones(nbytes // 16), np.ones(nbytes // 16)
        ways = partial(np.copyto, one, other), partial(np.dot, one, other)
        bandwidths[nbytes] = nbytes / min(_least(way, threads) for way in ways)
    peaks = {}
    for dtype in dtypes:
        rates = [2 * SIDE**3 / _least(product, threads) for product in _products(dtype)]
        if rates:
            peaks[dtype] = max(rates)
    return Roof(tuple(bandwidths.items()), peaks)


def _least(call: Callable[[], Any], threads: int) -> float:
    """Seconds of one call when nothing was in its way."""
    visit = visitor(HostTimer(call, threads), None)
    return min(visit() for _ in range(LOOKS))


def _products(dtype: str) -> list[Callable[[], Any]]:
    """Products of square matrices by who has them in this dtype."""
    from tunewright.bench.calls import Call  # noqa: PLC0415 - not needed where only an anchor runs
    from tunewright.operators.operator import NARROW  # noqa: PLC0415
    from tunewright.operators.registry import installed  # noqa: PLC0415
    from tunewright.operators.standard import GEMM  # noqa: PLC0415

    args = Call("gemm", dict.fromkeys(("M", "K", "N"), SIDE), dtype).arguments(GEMM)
    fast = {"numpy": ("float32", "float64"), "torch": ("float16", "bfloat16")}
    able = [one for one in installed().of(GEMM) if dtype in fast.get(one.name, ()) and dtype in one.support.dtypes]
    runs = [one.narrow if dtype == NARROW and one.narrow else one.run for one in able]
    return [partial(run, *args) for run in runs if run is not None]
