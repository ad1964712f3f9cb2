"""Payloads: products with what follows them, softmax, layer norm, convolution, attention; each with its reference."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, pi, sqrt
from typing import Any

import numpy as np

from tunewright.backends.mlir.writing import Body, Element, Payload, Size, Writer
from tunewright.errors import BackendError

EPSILON = 1e-5

SUM = Body(lambda e, x, o: e("addf", x[0], o), reads_result=True)
LARGEST = Body(lambda e, x, o: e("maximumf", x[0], o), reads_result=True)
PRODUCT = Body(lambda e, x, o: e("addf", o, e("mulf", x[0], x[1])), reads_result=True)


def _gelu(e: Element, x: str) -> str:
    """x times the share of a normal variable below it, as the tanh formula has it: a logistic function."""
    cube = e("mulf", e("mulf", x, x), x)
    inner = e("math.fma", cube, 0.044715, x)
    return e("divf", x, e("addf", e.exp(e("mulf", inner, -2 * sqrt(2 / pi))), 1.0))


_AFTER: dict[str, Callable[[Element, str], str]] = {
    "": lambda e, x: x,
    "relu": lambda e, x: e("maximumf", x, 0.0),
    "gelu": _gelu,
}


def _np_after(x: Any, after: str) -> Any:
    if after == "relu":
        return np.maximum(x, 0)
    if after == "gelu":
        return 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))
    return x


def _epilogue(w: Writer, mm: str, loops: str, after: str, bias: bool) -> str:
    """Add the bias of each column, then apply the function that follows, in place."""
    if not after and not bias:
        return mm
    last = loops.rpartition(",")[2]
    body = Body(lambda e, x, o: _AFTER[after](e, e("addf", o, x[0]) if bias else o), reads_result=True)
    return w.generic("after", loops, {"bias": last} if bias else {}, (mm, loops), body)


def _check(after: str) -> None:
    if after not in _AFTER:
        raise BackendError(f"after a product comes one of {', '.join(filter(None, _AFTER))} or nothing, not {after!r}")


def matmul(m: Size, n: int, k: int, *, bias: bool = False, after: str = "") -> Payload:
    """c = after(a b + bias); m None: any number of rows."""
    _check(after)
    w = Writer("matmul")
    a, b = w.read("a", m, k), w.read("b", k, n)
    if bias:
        w.read("bias", n)
    out = w.fill("zero", w.written("c", m, n))
    mm = w.named("product", "linalg.matmul", "i,j,K", {a: "i,k", b: "k,j"}, (out, "i,j"))

    def plain(a: Any, b: Any) -> Any:
        return _np_after(a @ b, after)

    done = _epilogue(w, mm, "i,j", after, bias)
    sizes = {"N": n, "K": k} if m is None else {"M": m, "N": n, "K": k}
    return w.finish(done, _biased(after) if bias else plain, **sizes)


def _biased(after: str) -> Callable[..., Any]:
    def reference(a: Any, b: Any, bias: Any) -> Any:
        return _np_after(a @ b + bias, after)

    return reference


def batch_matmul(batch: Size, m: int, n: int, k: int, *, after: str = "") -> Payload:
    """A product for each of a batch; batch None: any number."""
    _check(after)
    w = Writer("batch_matmul")
    a, b = w.read("a", batch, m, k), w.read("b", batch, k, n)
    out = w.fill("zero", w.written("c", batch, m, n))
    reads = {a: "b,i,k", b: "b,k,j"}
    mm = w.named("product", "linalg.batch_matmul", "b,i,j,K", reads, (out, "b,i,j"))

    def reference(a: Any, b: Any) -> Any:
        return _np_after(a @ b, after)

    return w.finish(_epilogue(w, mm, "b,i,j", after, bias=False), reference, M=m, N=n, K=k)


def conv2d(shape: tuple[Size, int, int, int], filters: int, side: int = 3, *, after: str = "") -> Payload:
    """A convolution of images (images, height, width, channels) with square filters, without padding."""
    _check(after)
    images, height, width, channels = shape
    high, wide = height - side + 1, width - side + 1
    w = Writer("conv2d")
    x, f = w.read("x", images, height, width, channels), w.read("f", side, side, channels, filters)
    out = w.fill("zero", w.written("y", images, high, wide, filters))
    reads = {x: "n,h+p,w+q,c", f: "p,q,c,f"}
    conv = w.generic("product", "n,h,w,f,P,Q,C", reads, (out, "n,h,w,f"), PRODUCT)

    def reference(x: Any, f: Any) -> Any:
        windows = np.lib.stride_tricks.sliding_window_view(x, (side, side), axis=(1, 2))
        return _np_after(np.einsum("nhwcpq,pqcf->nhwf", windows, f, optimize=True), after)

    done = _epilogue(w, conv, "n,h,w,f", after, bias=False)
    return w.finish(done, reference, N=filters, C=channels, W=wide, H=high, S=side)


def _softmax(w: Writer, x: str, loops: str, shape: tuple[Size, ...], into: str) -> str:
    """The parts of a softmax along the last loop, written into `into`."""
    *rows, last = loops.split(",")
    row, reduced = ",".join(rows), ",".join([*rows, last.upper()])
    top = w.generic("top", reduced, {x: loops}, (w.fill("low", w.empty("top_0", *shape[:-1]), -inf), row), LARGEST)
    powers = w.generic(
        "powers", loops, {x: loops, top: row}, (w.empty("powers_0", *shape), loops),
        Body(lambda e, v, o: e.exp(e("subf", v[0], v[1]))),
    )  # fmt: skip
    total = w.generic("total", reduced, {powers: loops}, (w.fill("none", w.empty("total_0", *shape[:-1])), row), SUM)
    return w.generic(
        "shares", loops, {powers: loops, total: row}, (into, loops), Body(lambda e, v, o: e("divf", v[0], v[1]))
    )


def _np_softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def softmax(rows: Size, width: int) -> Payload:
    """Softmax of each row; rows None: any number."""
    w = Writer("softmax")
    x, y = w.read("x", rows, width), w.written("y", rows, width)
    return w.finish(_softmax(w, x, "i,j", (rows, width), y), _np_softmax, W=width)


def layer_norm(rows: Size, width: int) -> Payload:
    """Each row shifted and scaled to mean 0 and variance 1, then scaled and shifted by column."""
    w = Writer("layer_norm")
    x, scale, shift = w.read("x", rows, width), w.read("scale", width), w.read("shift", width)
    y = w.written("y", rows, width)
    total = w.generic("total", "i,J", {x: "i,j"}, (w.fill("none", w.empty("total_0", rows)), "i"), SUM)
    mean = w.generic(
        "mean", "i", {total: "i"}, (w.empty("mean_0", rows), "i"), Body(lambda e, v, o: e("mulf", v[0], 1 / width))
    )

    def squared(e: Element, v: list[str], o: str) -> str:
        gap = e("subf", v[0], v[1])
        return e("addf", o, e("mulf", gap, gap))

    squares = w.generic(
        "squares", "i,J", {x: "i,j", mean: "i"}, (w.fill("none_2", w.empty("squares_0", rows)), "i"),
        Body(squared, reads_result=True),
    )  # fmt: skip
    factor = w.generic(
        "factor", "i", {squares: "i"}, (w.empty("factor_0", rows), "i"),
        Body(lambda e, v, o: e("divf", 1.0, e("math.sqrt", e("addf", e("mulf", v[0], 1 / width), EPSILON)))),
    )  # fmt: skip
    reads = {x: "i,j", mean: "i", factor: "i", scale: "j", shift: "j"}
    done = w.generic(
        "normal", "i,j", reads, (y, "i,j"),
        Body(lambda e, v, o: e("math.fma", e("mulf", e("subf", v[0], v[1]), v[2]), v[3], v[4])),
    )  # fmt: skip

    def reference(x: Any, scale: Any, shift: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON) * scale + shift

    return w.finish(done, reference, W=width)


def attention(heads: Size, length: int, width: int) -> Payload:
    """softmax(q kᵀ / √width) v for each head; heads None: any number."""
    w = Writer("attention")
    q, k, v = (w.read(name, heads, length, width) for name in ("q", "k", "v"))
    o = w.written("o", heads, length, width)
    scores = w.generic(
        "scores", "b,i,j,D", {q: "b,i,d", k: "b,j,d"},
        (w.fill("zero", w.empty("scores_0", heads, length, length)), "b,i,j"), PRODUCT,
    )  # fmt: skip
    scaled = w.generic(
        "scaled", "b,i,j", {scores: "b,i,j"}, (w.empty("scaled_0", heads, length, length), "b,i,j"),
        Body(lambda e, x, o: e("mulf", x[0], 1 / sqrt(width))),
    )  # fmt: skip
    shape = (heads, length, length)
    shares = _softmax(w, scaled, "b,i,j", shape, w.empty("shares_0", *shape))
    done = w.generic("mixed", "b,i,d,J", {shares: "b,i,j", v: "b,j,d"}, (w.fill("zero_2", o), "b,i,d"), PRODUCT)

    def reference(q: Any, k: Any, v: Any) -> Any:
        return _np_softmax(q @ np.swapaxes(k, -1, -2) / sqrt(width)) @ v

    return w.finish(done, reference, L=length, W=width)
