"""Calibration: anchors, work that never changes and runs in every comparison, and the roofline of this machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tunewright.bench.work import MachineRoofline
from tunewright.report.roofline import measure_bandwidth, measure_peak

MATRIX_ROWS = 512
"""Rows of the square matrices whose product shows the peak."""

WIDE_BYTES = 32 << 20
"""Bytes that no cache keeps for one core."""

WORKING_SETS = (32 << 10, 512 << 10, 4 << 20, 64 << 20)
"""Working sets in bytes whose bandwidth is measured: from what the nearest cache holds to what none does."""


def make_anchor(name: str) -> Callable[[], Any]:
    """Returns the work of an anchor: "dense" computes in cache, "wide" waits for memory."""
    if name == "dense":
        numbers = np.linspace(1.0, 2.0, 2048)
        return partial(np.sqrt, numbers, out=np.empty_like(numbers))
    source = np.ones(WIDE_BYTES // 8)
    return partial(np.copyto, np.empty_like(source), source)


def measure_roofline(threads: int, dtypes: tuple[str, ...]) -> MachineRoofline:
    """Measures bandwidth with numpy, and the peak of each dtype with the matrix products of numpy or torch."""
    peaks = {dtype: [measure_peak(matmul, MATRIX_ROWS, threads) for matmul in _matmuls(dtype)] for dtype in dtypes}
    known = {dtype: max(rates) for dtype, rates in peaks.items() if rates}
    return MachineRoofline(measure_bandwidth(WORKING_SETS, threads), known)


def _matmuls(dtype: str) -> list[Callable[[], Any]]:
    """Returns matrix products of the libraries that are fast in this dtype."""
    from tunewright.bench.calls import OperatorCall  # noqa: PLC0415 - not needed where only an anchor runs
    from tunewright.operators.operator import NARROW  # noqa: PLC0415
    from tunewright.operators.registry import installed  # noqa: PLC0415
    from tunewright.operators.standard import GEMM  # noqa: PLC0415

    args = OperatorCall("gemm", dict.fromkeys(("M", "K", "N"), MATRIX_ROWS), dtype).arguments(GEMM)
    fast = {"numpy": ("float32", "float64"), "torch": ("float16", "bfloat16")}
    usable = [
        implementation
        for implementation in installed().of(GEMM)
        if dtype in fast.get(implementation.name, ()) and dtype in implementation.support.dtypes
    ]
    runs = [known.narrow if dtype == NARROW and known.narrow else known.run for known in usable]
    return [partial(run, *args) for run in runs if run is not None]
