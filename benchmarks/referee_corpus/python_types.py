"""Honest kernels in Python: kinds of results, dtypes, layouts, threads, knobs and regimes."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import tunewright as tw
from referee_corpus.case import PRODUCT, honest, product

_chance = np.random.default_rng()


# Results.


@honest("double", "single", sizes=PRODUCT, reference=product)
def returns_an_array(a: tw.In("N", "N"), b: tw.In("N", "N"), *, way):
    return np.matmul(a.astype(np.float64), b).astype(np.float32) if way == "double" else np.matmul(a, b)


@honest("apart", "together", sizes={"N": 10_000}, reference=lambda x: (np.sin(x), np.cos(x)))
def returns_two_arrays(x: tw.In("N"), *, way):
    if way == "apart":
        return np.sin(x), np.cos(x)
    half = np.exp(1j * x.astype(np.float64)).astype(np.complex64)
    return half.imag, half.real


@honest("apart", "once", sizes={"M": 64, "N": 512}, reference=lambda x: (x.mean(axis=1), x.var(axis=1)))
def several_outputs(x: tw.In("M", "N"), mean: tw.Out("M"), variance: tw.Out("M"), *, way):
    if way == "apart":
        mean[...], variance[...] = x.mean(axis=1), x.var(axis=1)
        return
    np.mean(x, axis=1, out=mean)
    rest = x - mean[:, None]
    np.mean(np.square(rest, out=rest), axis=1, out=variance)


def _with_gaps(x: Any) -> Any:
    with np.errstate(all="ignore"):
        y = np.log(x)
        y[::100] = x[::100] / 0.0
    return y


@honest("log", "masked", sizes={"N": 10_000}, reference=_with_gaps)
def gives_nan_and_inf(x: tw.In("N"), y: tw.Out("N"), *, way):
    """Negative numbers have no logarithm; some elements are divided by zero."""
    if way == "log":
        y[...] = _with_gaps(x)
        return
    y.fill(np.nan)
    np.log(x, out=y, where=x >= 0)
    y[::100] = np.where(x[::100] < 0, -np.inf, np.inf)


@honest("loop", "array", sizes={"N": 1000})
def without_reference(x: tw.In("N"), y: tw.Out("N"), *, way):
    """The default config says what is right."""
    y[...] = [math.floor(v) for v in x.tolist()] if way == "loop" else np.floor(x)


# Types and layouts.


@honest("compare", "where", sizes={"N": 50_000}, reference=lambda x: np.abs(x) > 1)
def makes_a_mask(x: tw.In("N"), *, way):
    return np.abs(x) > 1 if way == "compare" else (x > 1) | (x < -1)


def _masked() -> list[Any]:
    return [_chance.random(50_000, np.float32), _chance.random(50_000) < 0.5, np.empty(50_000, np.float32)]


@honest("where", "multiply", arguments=_masked, reference=lambda x, keep: np.where(keep, x, 0))
def takes_a_mask(x: tw.In("N"), keep: tw.In("N"), y: tw.Out("N"), *, way):
    if way == "where":
        y[...] = np.where(keep, x, 0)
    else:
        np.multiply(x, keep, out=y)


@honest("integers", "floats", sizes={"N": 96}, reference=product, dtype="int64")
def integer_product(a: tw.In("N", "N"), b: tw.In("N", "N"), c: tw.Out("N", "N"), *, way):
    if way == "integers":
        np.matmul(a, b, out=c)
    else:
        np.matmul(a.astype(np.float64), b.astype(np.float64), out=c, casting="unsafe")


@honest("bincount", "compare", sizes={"N": 20_000}, reference=lambda x: np.bincount(x + 8, minlength=16), dtype="int32")
def counts(x: tw.In("N"), y: tw.Out(16), *, way):
    if way == "bincount":
        y[...] = np.bincount(x + 8, minlength=16)
    else:
        y[...] = [np.count_nonzero(x == value) for value in range(-8, 8)]


@honest("half", "single", sizes={"N": 8192}, reference=lambda x: 1 / (1 + np.abs(x)), dtype="float16")
def half_precision(x: tw.In("N"), y: tw.Out("N"), *, way):
    y[...] = 1 / (1 + np.abs(x)) if way == "half" else 1 / (1 + np.abs(x.astype(np.float32)))


@honest("parts", "whole", sizes={"N": 8192}, reference=lambda z: z * np.conj(z) + 1j * z, dtype="complex64")
def complex_numbers(z: tw.In("N"), y: tw.Out("N"), *, way):
    if way == "parts":
        y.real, y.imag = z.real**2 + z.imag**2 - z.imag, z.real
    else:
        np.add(z * z.conj(), 1j * z, out=y)


def _columns() -> list[Any]:
    return [_chance.random((200, 300), np.float32).T, np.empty((300, 200), np.float32, order="F")]


@honest("rows", "columns", arguments=_columns, reference=lambda x: x - x.mean(axis=0))
def by_columns(x: tw.In("M", "N"), y: tw.Out("M", "N"), *, way):
    """Arrays in Fortran's order."""
    if way == "rows":
        y[...] = x - x.mean(axis=0)
    else:
        np.subtract(x.T, x.T.mean(axis=1, keepdims=True), out=y.T)


# Threads, scalars, knobs, cases.

_pool: list[ThreadPoolExecutor] = []


@honest("one", "two", sizes=PRODUCT, reference=product)
def joins_its_threads(a: tw.In("N", "N"), b: tw.In("N", "N"), c: tw.Out("N", "N"), *, way):
    """A pool of threads lives on; its work is done before the call returns."""
    if way == "one":
        np.matmul(a, b, out=c)
        return
    if not _pool:
        _pool.append(ThreadPoolExecutor(2))
    half = len(a) // 2
    parts = [_pool[0].submit(np.matmul, a[rows], b, c[rows]) for rows in (slice(half), slice(half, None))]
    for part in parts:
        part.result()


@honest("one", "two", sizes=PRODUCT, reference=product, threads=2)
def declares_its_threads(a: tw.In("N", "N"), b: tw.In("N", "N"), c: tw.Out("N", "N"), *, way):
    if way == "one":
        np.matmul(a, b, out=c)
        return
    half = len(a) // 2
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda rows: np.matmul(a[rows], b, c[rows]), (slice(half), slice(half, None))))


@honest(
    "plain", "out", sizes={"N": 20_000, "shift": 3}, reference=lambda x, y, alpha, shift: alpha * np.roll(x, shift) + y
)
def scalars(x: tw.In("N"), y: tw.InOut("N"), alpha: float, shift: int, *, way):
    if way == "plain":
        y[...] = np.float32(alpha) * np.roll(x, shift) + y
        return
    y[shift:] += np.float32(alpha) * x[: len(x) - shift]
    y[:shift] += np.float32(alpha) * x[len(x) - shift :]


@honest(64, 0, 1024, sizes={"N": 8192}, reference=np.cumsum)
def zero_means_all(x: tw.In("N"), y: tw.Out("N"), *, way):
    """A knob of zero: no blocks."""
    total, step = 0.0, way or len(x)
    for start in range(0, len(x), step):
        part = x[start : start + step]
        y[start : start + step] = total + np.cumsum(part, dtype=np.float64)
        total += float(part.sum(dtype=np.float64))


@honest(
    *("plain", "out"),
    sizes={"M": 64, "N": 256},
    reference=lambda x: np.maximum(x, 0),
    cases=[tw.Case(weight=3, M=64), tw.Case(weight=1, M=64)],
)
def two_cases(x: tw.In("M", "N"), y: tw.Out("M", "N"), *, way):
    if way == "plain":
        y[...] = np.maximum(x, 0)
    else:
        np.maximum(x, 0, out=y)


def _softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@honest("plain", "stable", sizes={"M": 64, "N": 256}, reference=_softmax, regime="context")
def softmax_in_context(x: tw.In("M", "N"), y: tw.Out("M", "N"), *, way):
    if way == "plain":
        y[...] = _softmax(x)
        return
    np.exp(x, out=y)
    y /= y.sum(axis=1, keepdims=True)


@honest("plain", "dot", sizes={"N": 100_000}, reference=lambda x, y: float(x @ y), regime="cold", tolerance=1e-3)
def dot_when_cold(x: tw.In("N"), y: tw.In("N"), *, way):
    return float((x * y).sum()) if way == "plain" else float(x @ y)
