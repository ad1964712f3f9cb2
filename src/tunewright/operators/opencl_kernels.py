"""OpenCL kernels with their spaces: gemm, conv2d, transpose, reduce."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from tunewright.kernel.tuned import tune
from tunewright.model.signature import In, Out
from tunewright.opencl import DeviceSelector, OpenCL
from tunewright.spaces.space import Knob, Rule, Space

Array = NDArray[np.float32]

_HERE = Path(__file__).parent / "kernels"

_FEW_REGISTERS = 64
"""Accumulator vectors of a work-item beyond which every compiler spills."""

_SMALL_LOCAL = 32 << 10
"""Bytes of local memory that every device has."""

_LARGE_GROUP = 256
"""Work-items of a group that every device supports."""


def _group_rules(*extra: Rule) -> list[Rule]:
    small = Rule("a work-group of more than 256 is refused by some devices", lambda LX, LY: LX * LY <= _LARGE_GROUP)
    return [small, *extra]


GEMM = Space(
    Knob("LX", [1, 2, 4, 8, 16, 32]),
    Knob("LY", [1, 2, 4, 8, 16, 32]),
    Knob("TM", [1, 2, 4, 6, 8, 12, 16]),
    Knob("TN", [1, 2, 3, 4]),
    Knob("VW", [1, 2, 4, 8, 16]),
    Knob("KB", [1, 2, 4, 8, 16, 32, 64, 128]),
    Knob("STAGE", [0, 1]),
    rules=_group_rules(
        Rule("more than 64 vectors of sums spill", lambda TM, TN: TM * TN <= _FEW_REGISTERS),
        Rule(
            "the staged part of b must fit into local memory",
            lambda LX, TN, VW, KB, STAGE: not STAGE or 4 * KB * LX * TN * VW <= _SMALL_LOCAL,
        ),
        Rule("without staging KB only unrolls, which beyond 8 only grows the code", lambda KB, STAGE: STAGE or KB <= 8),
    ),
)

GEMM_DEFAULT = {"LX": 16, "LY": 16, "TM": 1, "TN": 1, "VW": 1, "KB": 16, "STAGE": 1}
"""The textbook tile: one element per work-item, 16 x 16 work-items per group."""

GEMM_START = {"LX": 1, "LY": 1, "TM": 8, "TN": 2, "VW": 16, "KB": 1, "STAGE": 0}
CONV2D_START = {"LX": 1, "LY": 1, "TX": 2, "TY": 4, "VW": 16, "UNROLL": 1, "STAGE": 0, "ROWS": 1}
TRANSPOSE_START = {"LX": 1, "LY": 1, "TX": 16, "TY": 16, "STAGE": 0, "PAD": 0, "FLIP": 1}
REDUCE_START = {"LX": 1, "LY": 16, "VW": 16, "CHAINS": 4, "NEAR": 0}
"""Starts of a search on a CPU: one work-item per group, whose vectors fill the registers."""

CONV2D = Space(
    Knob("LX", [1, 2, 4, 8, 16, 32]),
    Knob("LY", [1, 2, 4, 8, 16]),
    Knob("TX", [1, 2, 3, 4]),
    Knob("TY", [1, 2, 4, 6, 8]),
    Knob("VW", [1, 2, 4, 8, 16]),
    Knob("UNROLL", [1, 2, 4, 7]),
    Knob("STAGE", [0, 1]),
    Knob("ROWS", [0, 1]),
    rules=_group_rules(
        Rule("one row of results shares no row of the image", lambda TY, ROWS: not ROWS or TY > 1),
        Rule("more than 32 vectors of sums spill", lambda TX, TY: TX * TY <= _FEW_REGISTERS // 2),
    ),
)

CONV2D_DEFAULT = {"LX": 16, "LY": 16, "TX": 1, "TY": 1, "VW": 1, "UNROLL": 1, "STAGE": 1, "ROWS": 0}

TRANSPOSE = Space(
    Knob("LX", [1, 2, 4, 8, 16, 32, 64]),
    Knob("LY", [1, 2, 4, 8, 16, 32, 64]),
    Knob("TX", [1, 2, 4, 8, 16, 32]),
    Knob("TY", [1, 2, 4, 8, 16, 32]),
    Knob("STAGE", [0, 1]),
    Knob("PAD", [0, 1]),
    Knob("FLIP", [0, 1]),
    rules=_group_rules(
        Rule("only staged rows can be padded", lambda STAGE, PAD: STAGE or not PAD),
        Rule(
            "staged tiles are read along rows and written along columns anyway",
            lambda STAGE, FLIP: not (STAGE and FLIP),
        ),
        Rule(
            "the tile must fit into local memory",
            lambda LX, LY, TX, TY, STAGE, PAD: not STAGE or 4 * LY * TY * (LX * TX + PAD) <= _SMALL_LOCAL,
        ),
    ),
)

TRANSPOSE_DEFAULT = {"LX": 16, "LY": 16, "TX": 1, "TY": 1, "STAGE": 1, "PAD": 1, "FLIP": 0}

REDUCE = Space(
    Knob("LX", [1, 2, 4, 8, 16, 32, 64, 128, 256]),
    Knob("LY", [1, 2, 4, 8, 16, 32]),
    Knob("VW", [1, 2, 4, 8, 16]),
    Knob("CHAINS", [1, 2, 3, 4, 6, 8]),
    Knob("NEAR", [0, 1]),
    rules=_group_rules(Rule("one work-item to a row takes no turns", lambda LX, NEAR: LX > 1 or not NEAR)),
)

REDUCE_DEFAULT = {"LX": 64, "LY": 1, "VW": 1, "CHAINS": 1, "NEAR": 0}


def window(x: Any, w: Any) -> Any:
    """Convolution of one image with one filter, tap by tap."""
    high, wide = x.shape[0] - w.shape[0] + 1, x.shape[1] - w.shape[1] + 1
    parts = [w[r, s] * x[r : r + high, s : s + wide] for r in range(w.shape[0]) for s in range(w.shape[1])]
    return sum(parts)


def gemm_source(on: DeviceSelector | None = None) -> OpenCL:
    """Returns the backend of the gemm kernel."""
    groups = lambda M, N, LX, LY, TM, TN, VW: (-(-N // (LX * TN * VW)), -(-M // (LY * TM)))  # noqa: E731
    return OpenCL(_HERE / "gemm.cl", "gemm", groups=groups, local=("LX", "LY"), on=on)


def conv2d_source(on: DeviceSelector | None = None) -> OpenCL:
    """Returns the backend of the conv2d kernel."""
    groups = lambda H, W, R, S, LX, LY, TX, TY, VW: (-(-(W - S + 1) // (LX * TX * VW)), -(-(H - R + 1) // (LY * TY)))  # noqa: E731
    return OpenCL(_HERE / "conv2d.cl", "conv2d", groups=groups, local=("LX", "LY"), on=on)


def transpose_source(on: DeviceSelector | None = None) -> OpenCL:
    """Returns the backend of the transpose kernel."""
    groups = lambda M, N, LX, LY, TX, TY: (-(-N // (LX * TX)), -(-M // (LY * TY)))  # noqa: E731
    return OpenCL(_HERE / "transpose.cl", "transpose", groups=groups, local=("LX", "LY"), on=on)


def reduce_source(on: DeviceSelector | None = None) -> OpenCL:
    """Returns the backend of the reduce kernel."""
    return OpenCL(_HERE / "reduce.cl", "reduce", groups=lambda M, LY: (1, -(-M // LY)), local=("LX", "LY"), on=on)


@tune(GEMM, backend=gemm_source(), default=GEMM_DEFAULT, reference=np.matmul, budget="150", name="opencl-gemm")
def gemm(
    a: Annotated[Array, In("M", "K")], b: Annotated[Array, In("K", "N")], c: Annotated[Array, Out("M", "N")]
) -> None:
    """`c = a b`."""


@tune(CONV2D, backend=conv2d_source(), default=CONV2D_DEFAULT, reference=window, budget="150", name="opencl-conv2d")
def conv2d(x: Annotated[Array, In("H", "W")], w: Annotated[Array, In("R", "S")], y: Annotated[Array, Out]) -> None:
    """`y` is the convolution of `x` with `w`, without padding."""


@tune(
    TRANSPOSE,
    backend=transpose_source(),
    default=TRANSPOSE_DEFAULT,
    reference=lambda x: x.T.copy(),
    budget="100",
    name="opencl-transpose",
)
def transpose(x: Annotated[Array, In("M", "N")], y: Annotated[Array, Out("N", "M")]) -> None:
    """`y` is `x` transposed."""


@tune(
    REDUCE,
    backend=reduce_source(),
    default=REDUCE_DEFAULT,
    reference=lambda x: x.sum(axis=1),
    budget="100",
    name="opencl-reduce",
)
def reduce(x: Annotated[Array, In("M", "N")], y: Annotated[Array, Out("M")]) -> None:
    """`y` are the sums of the rows of `x`."""
