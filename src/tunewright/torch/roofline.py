"""Roofline of this machine measured with PyTorch, and the arithmetic that operations of a graph take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import torch

from tunewright.report.roofline import Roofline, measure_bandwidth, measure_peak
from tunewright.torch.compiler_output import sizes
from tunewright.torch.report.compile_report import VIEWS, GraphOperation

WORKING_SETS = (1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26)
"""Bytes at which bandwidth is measured, since caches are faster than memory."""

SIDE = 384
SAMPLES = 40
"""Many short samples: on a busy machine some of them are not interrupted."""


def measure_roofline(dtype: torch.dtype = torch.float32) -> Roofline:
    """Measures bandwidth and peak with as many threads as PyTorch uses now."""
    left, right = torch.rand(SIDE, SIDE).to(dtype), torch.rand(SIDE, SIDE).to(dtype)
    matmul = partial(torch.mm, left, right, out=torch.empty(SIDE, SIDE, dtype=dtype))
    threads = torch.get_num_threads()
    return Roofline(
        measure_peak(matmul, SIDE, threads, SAMPLES), measure_bandwidth(WORKING_SETS, threads, _copies, SAMPLES)
    )


def _copies(nbytes: int) -> Iterable[Callable[[], Any]]:
    """Returns a copy between two tensors that have `nbytes` together."""
    source, target = torch.ones(nbytes // 8), torch.empty(nbytes // 8)
    return (partial(target.copy_, source),)


def flops(operations: Sequence[GraphOperation], shapes: Mapping[str, str]) -> float:
    """Returns the arithmetic of operations: matrix products by their sizes, others one for each element."""
    return float(sum(_flops(operation, shapes) for operation in operations))


def _flops(operation: GraphOperation, shapes: Mapping[str, str]) -> float:
    result = prod(sizes(operation.result)) if operation.result else 0
    inputs = [sizes(shapes.get(name, "")) for name in operation.reads]
    if operation.call in ("mm", "bmm", "addmm", "baddbmm", "matmul"):
        matrices = [shape for shape in inputs if len(shape) >= 2]
        left = matrices[-2] if len(matrices) > 1 else matrices[0] if matrices else [0]
        return 2.0 * result * left[-1]
    if "linear" in operation.call and inputs:
        return 2.0 * result * inputs[0][-1]
    if operation.call == "convolution" and len(inputs) > 1:
        return 2.0 * result * prod(inputs[1][1:])
    if "scaled_dot_product" in operation.call and len(inputs) > 2:
        query, key = inputs[0], inputs[1]
        return 4.0 * prod(query) * key[-2]
    if operation.call in VIEWS:
        return 0.0
    return float(max([result, *(prod(shape) for shape in inputs)], default=0))
