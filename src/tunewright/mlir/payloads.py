"""Ready-made payloads with references: matmul with epilogue, softmax, layer norm, convolution, attention."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, pi, sqrt
from typing import Any

import numpy as np

from tunewright.errors import BackendError
from tunewright.mlir.payload import OpBody, Payload, PayloadBuilder, ScalarBuilder, Size

EPSILON = 1e-5

SUM = OpBody(lambda e, x, o: e("addf", x[0], o), reads_result=True)
# Without NaN the maximum is one instruction. Where there is one, what is computed from its element is NaN anyway.
MAXIMUM = OpBody(lambda e, x, o: e.emit(f"arith.maxnumf {x[0]}, {o} fastmath<nnan> : f32"), reads_result=True)
PRODUCT = OpBody(lambda e, x, o: e("addf", o, e("mulf", x[0], x[1])), reads_result=True)


def _gelu(e: ScalarBuilder, x: str) -> str:
    """GELU in its tanh approximation, written as a logistic function."""
    cube = e("mulf", e("mulf", x, x), x)
    inner = e("math.fma", cube, 0.044715, x)
    return e("divf", x, e("addf", e.exp(e("mulf", inner, -2 * sqrt(2 / pi))), 1.0))


_EPILOGUES: dict[str, Callable[[ScalarBuilder, str], str]] = {
    "": lambda e, x: x,
    "relu": lambda e, x: e.select("olt", x, 0.0, 0.0, x),
    "gelu": _gelu,
}


def _np_after(x: Any, after: str) -> Any:
    if after == "relu":
        return np.maximum(x, 0)
    if after == "gelu":
        return 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))
    return x


_RESULTS = {"f32": "f32", "bf16": "bf16", "i8": "i32"}
"""The elements of products with their results. Products of bfloat16 are added up in float32, those of int8 in int32."""


def _check_element(element: str, *after: object) -> None:
    if element not in _RESULTS:
        raise BackendError(f"`element` is one of {', '.join(_RESULTS)}, not {element!r}")
    if element == "i8" and any(after):
        raise BackendError("a product of i8 is i32, without a bias or an activation; leave out `bias` and `after`")


def _sums(w: PayloadBuilder, out: str, shape: tuple[Size, ...], element: str) -> str:
    """Returns zeros to add a product to: in the result itself, unless it is narrower than its sums."""
    return w.fill("zero", w.empty("sums", *shape) if element == "bf16" else out)


def _finish_product(w: PayloadBuilder, mm: str, out: str, loops: str, after: str, bias: bool) -> str:
    """Add what follows a product; one of bfloat16 is rounded to its result at the end."""
    if w.element(out) != "bf16":
        return _epilogue(w, mm, loops, after, bias)
    last = loops.rpartition(",")[2]
    body = OpBody(lambda e, x, o: _EPILOGUES[after](e, e("addf", x[0], x[1]) if bias else x[0]))
    return w.generic("after", loops, {mm: loops} | ({"bias": last} if bias else {}), (out, loops), body)


def _np_product(a: Any, b: Any) -> Any:
    """Returns the product; of integers exactly, as int32."""
    if a.dtype.kind == "i":
        return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int32)
    return a @ b


def _epilogue(w: PayloadBuilder, mm: str, loops: str, after: str, bias: bool) -> str:
    """Add the bias of each column and the activation, in place."""
    if not after and not bias:
        return mm
    last = loops.rpartition(",")[2]
    body = OpBody(lambda e, x, o: _EPILOGUES[after](e, e("addf", o, x[0]) if bias else o), reads_result=True)
    return w.generic("after", loops, {"bias": last} if bias else {}, (mm, loops), body)


def _check_epilogue(after: str) -> None:
    if after not in _EPILOGUES:
        raise BackendError(f"`after` is one of {', '.join(filter(None, _EPILOGUES))} or nothing, not {after!r}")


def matmul(m: Size, n: int, k: int, *, bias: bool = False, after: str = "", element: str = "f32") -> Payload:
    """Returns the payload c = after(a b + bias); with m None, for any number of rows.

    Arrays are of `element`: f32, bf16, or i8, whose product is i32.
    """
    _check_epilogue(after)
    _check_element(element, after, bias)
    w = PayloadBuilder("matmul")
    a, b = w.input("a", m, k, element=element), w.input("b", k, n, element=element)
    if bias:
        w.input("bias", n, element=element)
    out = w.output("c", m, n, element=_RESULTS[element])
    into = _sums(w, out, (m, n), element)
    mm = w.named("product", "linalg.matmul", "i,j,K", {a: "i,k", b: "k,j"}, (into, "i,j"))

    def plain(a: Any, b: Any) -> Any:
        return _np_after(_np_product(a, b), after)

    result = _finish_product(w, mm, out, "i,j", after, bias)
    sizes = {"N": n, "K": k} if m is None else {"M": m, "N": n, "K": k}
    return w.finish(result, _biased(after) if bias else plain, **sizes)


def _biased(after: str) -> Callable[..., Any]:
    def reference(a: Any, b: Any, bias: Any) -> Any:
        return _np_after(a @ b + bias, after)

    return reference


def batch_matmul(batch: Size, m: int, n: int, k: int, *, after: str = "", element: str = "f32") -> Payload:
    """Returns a batched matmul of `element`, as in `matmul`; with batch None, for any batch size."""
    _check_epilogue(after)
    _check_element(element, after)
    w = PayloadBuilder("batch_matmul")
    a, b = w.input("a", batch, m, k, element=element), w.input("b", batch, k, n, element=element)
    out = w.output("c", batch, m, n, element=_RESULTS[element])
    into, reads = _sums(w, out, (batch, m, n), element), {a: "b,i,k", b: "b,k,j"}
    mm = w.named("product", "linalg.batch_matmul", "b,i,j,K", reads, (into, "b,i,j"))

    def reference(a: Any, b: Any) -> Any:
        return _np_after(_np_product(a, b), after)

    return w.finish(_finish_product(w, mm, out, "b,i,j", after, bias=False), reference, M=m, N=n, K=k)


def conv2d(shape: tuple[Size, int, int, int], filters: int, side: int = 3, *, after: str = "") -> Payload:
    """Returns a convolution of NHWC images with square filters, without padding."""
    _check_epilogue(after)
    images, height, width, channels = shape
    high, wide = height - side + 1, width - side + 1
    w = PayloadBuilder("conv2d")
    x, f = w.input("x", images, height, width, channels), w.input("f", side, side, channels, filters)
    out = w.fill("zero", w.output("y", images, high, wide, filters))
    reads = {x: "n,h+p,w+q,c", f: "p,q,c,f"}
    conv = w.generic("product", "n,h,w,f,P,Q,C", reads, (out, "n,h,w,f"), PRODUCT)

    def reference(x: Any, f: Any) -> Any:
        windows = np.lib.stride_tricks.sliding_window_view(x, (side, side), axis=(1, 2))
        return _np_after(np.einsum("nhwcpq,pqcf->nhwf", windows, f, optimize=True), after)

    result = _epilogue(w, conv, "n,h,w,f", after, bias=False)
    return w.finish(result, reference, N=filters, C=channels, W=wide, H=high, S=side)


def _softmax(w: PayloadBuilder, x: str, loops: str, shape: tuple[Size, ...], into: str) -> str:
    """Add the operations of a softmax along the last loop, written into `into`."""
    *rows, last = loops.split(",")
    row, reduced = ",".join(rows), ",".join([*rows, last.upper()])
    top = w.generic("top", reduced, {x: loops}, (w.fill("low", w.empty("top_0", *shape[:-1]), -inf), row), MAXIMUM)
    powers = w.generic(
        "powers", loops, {x: loops, top: row}, (w.empty("powers_0", *shape), loops),
        OpBody(lambda e, v, o: e.exp(e("subf", v[0], v[1]))),
    )  # fmt: skip
    total = w.generic("total", reduced, {powers: loops}, (w.fill("none", w.empty("total_0", *shape[:-1])), row), SUM)
    inverse = w.generic(
        "inverse", row, {total: row}, (w.empty("inverse_0", *shape[:-1]), row),
        OpBody(lambda e, v, o: e("divf", 1.0, v[0])),
    )  # fmt: skip
    return w.generic(
        "shares", loops, {powers: loops, inverse: row}, (into, loops), OpBody(lambda e, v, o: e("mulf", v[0], v[1]))
    )


def _np_softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def softmax(rows: Size, width: int) -> Payload:
    """Returns the softmax of each row; with rows None, for any number of rows."""
    w = PayloadBuilder("softmax")
    x, y = w.input("x", rows, width), w.output("y", rows, width)
    return w.finish(_softmax(w, x, "i,j", (rows, width), y), _np_softmax, W=width)


def layer_norm(rows: Size, width: int) -> Payload:
    """Returns the layer norm of each row, with scale and shift by column."""
    w = PayloadBuilder("layer_norm")
    x, scale, shift = w.input("x", rows, width), w.input("scale", width), w.input("shift", width)
    y = w.output("y", rows, width)
    total = w.generic("total", "i,J", {x: "i,j"}, (w.fill("none", w.empty("total_0", rows)), "i"), SUM)
    mean = w.generic(
        "mean", "i", {total: "i"}, (w.empty("mean_0", rows), "i"), OpBody(lambda e, v, o: e("mulf", v[0], 1 / width))
    )

    def squared(e: ScalarBuilder, v: list[str], o: str) -> str:
        gap = e("subf", v[0], v[1])
        return e("addf", o, e("mulf", gap, gap))

    squares = w.generic(
        "squares", "i,J", {x: "i,j", mean: "i"}, (w.fill("none_2", w.empty("squares_0", rows)), "i"),
        OpBody(squared, reads_result=True),
    )  # fmt: skip
    factor = w.generic(
        "factor", "i", {squares: "i"}, (w.empty("factor_0", rows), "i"),
        OpBody(lambda e, v, o: e("divf", 1.0, e("math.sqrt", e("addf", e("mulf", v[0], 1 / width), EPSILON)))),
    )  # fmt: skip
    reads = {x: "i,j", mean: "i", factor: "i", scale: "j", shift: "j"}
    result = w.generic(
        "normal", "i,j", reads, (y, "i,j"),
        OpBody(lambda e, v, o: e("math.fma", e("mulf", e("subf", v[0], v[1]), v[2]), v[3], v[4])),
    )  # fmt: skip

    def reference(x: Any, scale: Any, shift: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON) * scale + shift

    return w.finish(result, reference, W=width)


def attention(heads: Size, length: int, width: int) -> Payload:
    """Returns softmax(q kᵀ / √width) v for each head; with heads None, for any number of heads."""
    w = PayloadBuilder("attention")
    q, k, v = (w.input(name, heads, length, width) for name in ("q", "k", "v"))
    o = w.output("o", heads, length, width)
    scores = w.generic(
        "scores", "b,i,j,D", {q: "b,i,d", k: "b,j,d"},
        (w.fill("zero", w.empty("scores_0", heads, length, length)), "b,i,j"), PRODUCT,
    )  # fmt: skip
    scaled = w.generic(
        "scaled", "b,i,j", {scores: "b,i,j"}, (w.empty("scaled_0", heads, length, length), "b,i,j"),
        OpBody(lambda e, x, o: e("mulf", x[0], 1 / sqrt(width))),
    )  # fmt: skip
    shape = (heads, length, length)
    shares = _softmax(w, scaled, "b,i,j", shape, w.empty("shares_0", *shape))
    result = w.generic("mixed", "b,i,d,J", {shares: "b,i,j", v: "b,j,d"}, (w.fill("zero_2", o), "b,i,d"), PRODUCT)

    def reference(q: Any, k: Any, v: Any) -> Any:
        return _np_softmax(q @ np.swapaxes(k, -1, -2) / sqrt(width)) @ v

    return w.finish(result, reference, L=length, W=width)
