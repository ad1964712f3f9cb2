"""Standard operators with numpy references. The source of a reference is part of keys, names included."""

from __future__ import annotations

from math import sqrt
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from tunewright.model.signature import In, Out
from tunewright.operators.operator import Operator

Array = NDArray[Any]
Shape = tuple[int, ...]

EPSILON = 1e-5
"""Added to the variance by layer norm."""


def _gemm(
    a: Annotated[Array, In("M", "K")], b: Annotated[Array, In("K", "N")], out: Annotated[Array, Out("M", "N")]
) -> None:
    """`out = a b`."""


def _batched_gemm(
    a: Annotated[Array, In("B", "M", "K")],
    b: Annotated[Array, In("B", "K", "N")],
    out: Annotated[Array, Out("B", "M", "N")],
) -> None:
    """`out[i] = a[i] b[i]`."""


def _conv2d(
    x: Annotated[Array, In("I", "C", "H", "W")], w: Annotated[Array, In("F", "C", "R", "S")], out: Annotated[Array, Out]
) -> None:
    """Convolution of NCHW images, without padding, stride 1."""


def _softmax(x: Annotated[Array, In("M", "N")], out: Annotated[Array, Out("M", "N")]) -> None:
    """The softmax of each row."""


def _layer_norm(
    x: Annotated[Array, In("M", "N")], scale: Annotated[Array, In("N")], shift: Annotated[Array, In("N")],
    out: Annotated[Array, Out("M", "N")],
) -> None:  # fmt: skip
    """Layer norm of each row, with scale and shift by column."""


def _attention(
    q: Annotated[Array, In("H", "L", "D")], k: Annotated[Array, In("H", "S", "D")],
    v: Annotated[Array, In("H", "S", "D")], out: Annotated[Array, Out("H", "L", "D")],
) -> None:  # fmt: skip
    """`softmax(q kᵀ / √D) v` for each head."""


def _transpose(x: Annotated[Array, In("M", "N")], out: Annotated[Array, Out("N", "M")]) -> None:
    """`x` transposed, contiguous."""


def _reduce(x: Annotated[Array, In("M", "N")], out: Annotated[Array, Out("M")]) -> None:
    """The sum of each row."""


def _right_conv2d(x: Any, w: Any) -> Any:
    seen = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.einsum("ichwrs,fcrs->ifhw", seen, w, optimize=True)


def _right_softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _right_layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON) * scale + shift


def _right_attention(q: Any, k: Any, v: Any) -> Any:
    return _right_softmax(q @ np.swapaxes(k, -1, -2) / sqrt(q.shape[-1])) @ v


def _right_transpose(x: Any) -> Any:
    return x.T.copy()


def _right_reduce(x: Any) -> Any:
    return x.sum(-1)


def _same_shape(*shapes: Shape) -> Shape:
    return shapes[0]


def _gemm_shape(a: Shape, b: Shape) -> Shape:
    return (*a[:-1], b[-1])


def _conv2d_shape(x: Shape, w: Shape) -> Shape:
    return (x[0], w[0], x[2] - w[2] + 1, x[3] - w[3] + 1)


GEMM = Operator("gemm", _gemm, np.matmul, _gemm_shape)
BATCHED_GEMM = Operator("batched_gemm", _batched_gemm, np.matmul, _gemm_shape)
CONV2D = Operator("conv2d", _conv2d, _right_conv2d, _conv2d_shape)
SOFTMAX = Operator("softmax", _softmax, _right_softmax, _same_shape)
LAYER_NORM = Operator("layer_norm", _layer_norm, _right_layer_norm, _same_shape)
ATTENTION = Operator("attention", _attention, _right_attention, _same_shape)
TRANSPOSE = Operator("transpose", _transpose, _right_transpose, lambda x: x[::-1])
REDUCE = Operator("reduce", _reduce, _right_reduce, lambda x: x[:1])

STANDARD = {
    operator.name: operator
    for operator in (GEMM, BATCHED_GEMM, CONV2D, SOFTMAX, LAYER_NORM, ATTENTION, TRANSPOSE, REDUCE)
}
