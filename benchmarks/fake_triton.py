"""Stock Triton where there is no GPU (rung 2): its real JIT, compiler and autotuner over a pretended driver.

Only the cost of the Python that runs before a launch means anything here; nothing is computed and nothing is timed on
a device.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import KernelInterface

from tunewright.testing.triton_driver import FakeDriver

GRID = (64,)
CONFIGS = [triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})]
Call = Callable[..., Any]


@triton.jit
def scaled_sum(a, b, c, M, N, K, BLOCK: tl.constexpr):  # noqa: N803, PLR0913, PLR0917 - as Triton's are
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < M * N
    tl.store(c + at, tl.load(a + at, mask=inside) + K * tl.load(b + at, mask=inside), mask=inside)


class NoKernel(KernelInterface):
    """Where Triton's JIT would take over: does nothing."""

    def run(self, *args: Any, **kwargs: Any) -> None:
        pass


@dataclass(frozen=True)
class Launches:
    """Ways to launch, each called with three tensors and three ints."""

    args: tuple[Any, ...]
    tuned: Call  # the autotuner's cached look-up, then the JIT's launch
    direct: Call  # the JIT's launch with the same config spelled out
    looked_up: Call  # the autotuner's cached look-up, then nothing
    nothing: Call  # nothing, with the same config spelled out


def launches(size: int, cache: str) -> Launches:
    """Tune `scaled_sum` for square tensors under the fake driver; compiled code goes to `cache`."""
    triton.knobs.cache.dir = cache
    triton.knobs.language.default_fp_fusion = True
    triton.runtime.driver.set_active(FakeDriver(noted=False))
    args = (*(torch.ones(size, size) for _ in range(3)), size, size, size)
    tuner: Autotuner = triton.autotune(CONFIGS, key=["M", "N", "K"])(scaled_sum)
    tuner[GRID](*args)
    if len(tuner.cache) != 1:
        raise RuntimeError(f"Triton keeps {len(tuner.cache)} decisions after one call, not 1")
    look_up = copy.copy(tuner)
    look_up.fn = NoKernel()
    config = tuner.best_config.all_kwargs()
    return Launches(
        args=args,
        tuned=tuner[GRID],
        direct=partial(scaled_sum[GRID], **config),
        looked_up=look_up[GRID],
        nothing=partial(look_up.fn[GRID], **config),
    )
