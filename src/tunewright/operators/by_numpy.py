"""Implementations in numpy: the defaults. The source of these functions is part of keys, names included."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from tunewright.operators import standard
from tunewright.operators.operator import NARROW, Implementation, Operator, Support

HALVES = ("float16", NARROW, "float32", "float64")


def product(a: Any, b: Any, out: Any) -> None:
    """Matmul, also batched."""
    np.matmul(a, b, out=out)


def conv2d(x: Any, w: Any, out: Any) -> None:
    """Convolution tap by tap for a single channel, else as im2col and matmul."""
    high, wide = out.shape[2:]
    if x.shape[1] == 1 and w.shape[0] == 1:
        np.multiply(x[:, :, :high, :wide], w[0, 0, 0, 0], out=out)
        for r, s in list(np.ndindex(w.shape[2:]))[1:]:
            out += w[0, 0, r, s] * x[:, :, r : r + high, s : s + wide]
        return
    seen = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    columns = seen.transpose(1, 4, 5, 0, 2, 3).reshape(w[0].size, -1)
    made = (w.reshape(w.shape[0], -1) @ columns).reshape(w.shape[0], x.shape[0], high, wide)
    out[...] = made.transpose(1, 0, 2, 3)


def softmax(x: Any, out: Any) -> None:
    """Softmax in place, after the first step."""
    np.subtract(x, x.max(-1, keepdims=True), out=out)
    np.exp(out, out=out)
    out /= out.sum(-1, keepdims=True)


def layer_norm(x: Any, scale: Any, shift: Any, out: Any) -> None:
    """Layer norm in place, after the first step."""
    np.subtract(x, x.mean(-1, keepdims=True), out=out)
    out /= np.sqrt(np.einsum("ij,ij->i", out, out)[:, None] / x.shape[1] + x.dtype.type(standard.EPSILON))
    out *= scale
    out += shift


def attention(q: Any, k: Any, v: Any, out: Any) -> None:
    """Attention with all scores at once."""
    scores = np.matmul(q, k.transpose(0, 2, 1))
    scores *= q.dtype.type(1 / sqrt(q.shape[-1]))
    softmax(scores, scores)
    np.matmul(scores, v, out=out)


def transpose(x: Any, out: Any) -> None:
    """Transpose by a strided copy."""
    np.copyto(out, x.T)


def reduce(x: Any, out: Any) -> None:
    """Pairwise sum of each row."""
    np.sum(x, axis=-1, out=out)


def blas_reduce(x: Any, out: Any) -> None:
    """Sum of each row as a BLAS product with ones."""
    np.matmul(x, np.ones(x.shape[1], x.dtype), out=out)


def widened(run: Callable[..., None]) -> Callable[..., None]:
    """Returns the function for bfloat16, which numpy cannot compute with: in float32, then rounded."""

    def narrow(*args: Any) -> None:
        out = np.empty(args[-1].shape, np.float32)
        run(*(array.astype(np.float32) for array in args[:-1]), out)
        args[-1][...] = out

    return narrow


def implementations() -> list[Implementation]:
    """Returns the implementations; all but BLAS also take 16-bit floats."""
    runs: dict[Operator, Callable[..., None]] = {
        standard.GEMM: product, standard.BATCHED_GEMM: product, standard.CONV2D: conv2d, standard.SOFTMAX: softmax,
        standard.LAYER_NORM: layer_norm, standard.ATTENTION: attention, standard.TRANSPOSE: transpose,
        standard.REDUCE: reduce,
    }  # fmt: skip
    plain = [Implementation("numpy", op, run, narrow=widened(run), support=Support(HALVES)) for op, run in runs.items()]
    return [*plain, Implementation("blas", standard.REDUCE, blas_reduce)]
