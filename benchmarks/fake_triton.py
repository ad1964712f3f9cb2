"""Stock Triton where there is no GPU (rung 2): its real JIT, compiler and autotuner over a driver that does nothing.

Only the cost of the Python that runs before a launch means anything here; nothing is computed and nothing is timed on
a device.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import KernelInterface

GRID = (64,)
CONFIGS = [triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})]
Call = Callable[..., Any]


@triton.jit
def scaled_sum(a, b, c, M, N, K, BLOCK: tl.constexpr):  # noqa: N803, PLR0913, PLR0917 - as Triton's are
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < M * N
    tl.store(c + at, tl.load(a + at, mask=inside) + K * tl.load(b + at, mask=inside), mask=inside)


class Binaries:
    """Takes compiled code and loads it nowhere."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 166_912, "max_num_regs": 65_536, "multiprocessor_count": 108, "warpSize": 32}

    def load_binary(self, name: str, code: bytes, shared: int, device: int) -> tuple[str, str, int, int, int]:
        registers, spills, most_threads = 0, 0, 1024
        return name, name, registers, spills, most_threads

    def unload_module(self, module: str) -> None:
        pass


class Launcher:
    """Launches nothing."""

    def __init__(self, source: Any, metadata: Any) -> None:
        pass

    def __call__(self, *args: Any) -> None:
        pass


class FakeDriver(DriverBase):
    """Says it is an A100, so that everything above it behaves as on one."""

    def __init__(self) -> None:
        self.utils = Binaries()
        self.launcher_cls = Launcher

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 80, 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        return _call_once


def _call_once(call: Callable[[], Any], *, quantiles: Sequence[float], **_: Any) -> Sequence[float]:
    """Stands in for timing: compiles and launches, and finds every config equally fast."""
    call()
    return [1.0 for _ in quantiles]


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
    triton.runtime.driver.set_active(FakeDriver())
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
