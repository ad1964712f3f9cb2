"""Honest kernels in Python that do what may look suspicious: each way gives what the reference gives."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

import tunewright as tw
from referee_corpus.case import PRODUCT, address, honest, product

_scratch: dict[Any, Any] = {}
_chance = np.random.default_rng()


# Arrays that are read and written.


@honest("new", "in_place", sizes={"N": 50_000}, reference=lambda x: 3 * x + 1)
def in_place(x: tw.InOut("N"), *, way):
    if way == "new":
        x[...] = 3 * x + 1
    else:
        np.multiply(x, 3, out=x)
        np.add(x, 1, out=x)


@honest("add", "out", sizes=PRODUCT, reference=lambda a, b, c: c + a @ b)
def accumulates_into(a: tw.In("N", "N"), b: tw.In("N", "N"), c: tw.InOut("N", "N"), *, way):
    if way == "add":
        c[...] = c + a @ b
    else:
        np.add(c, a @ b, out=c)


def _every_other(x: Any, y: Any) -> Any:
    y[::2] = np.sqrt(np.abs(x[::2]))
    return y


@honest("loop", "slices", sizes={"N": 512}, reference=_every_other)
def writes_in_part(x: tw.In("N", "N"), y: tw.InOut("N", "N"), *, way):
    """Every other row stays as it was."""
    if way == "loop":
        for row in range(0, len(x), 2):
            y[row] = np.sqrt(np.abs(x[row]))
    else:
        np.sqrt(np.abs(x[::2]), out=y[::2])


@honest("sorted", "quick", "stable", sizes={"N": 4096}, reference=np.sort)
def sorts_in_place(x: tw.InOut("N"), *, way):
    if way == "sorted":
        x[...] = np.sort(x)
    else:
        x.sort(kind="quicksort" if way == "quick" else "stable")


def _two_vectors() -> list[Any]:
    return list(_chance.random((2, 20_000), dtype=np.float32))


@honest("plain", "out", arguments=_two_vectors, reference=lambda x, y: (x + y, x - y))
def without_roles(x, y, *, way):
    """Arrays without a role may be read and written."""
    total, difference = (x + y, x - y) if way == "plain" else (np.add(x, y), np.subtract(x, y))
    x[...], y[...] = total, difference


# Kept between calls.


@honest("plain", "packed", sizes={"M": 128, "K": 192, "N": 192}, reference=product)
def packed_weights(a: tw.In("M", "K"), b: tw.In("K", "N", constant=True), c: tw.Out("M", "N"), *, way):
    """Weights are declared constant, and packed once by pointer."""
    if way == "plain":
        c[...] = np.matmul(a.astype(np.float64), b)
        return
    if (packed := _scratch.get(address(b))) is None:
        packed = _scratch[address(b)] = np.asfortranarray(b)
    np.matmul(a, packed, out=c)


@honest("plain", "kept", sizes={"M": 256, "N": 64}, reference=lambda x, w: x / np.sqrt((w * w).sum(axis=0)))
def norms_of_weights(x: tw.In("M", "N"), w: tw.In(512, "N", constant=True), y: tw.Out("M", "N"), *, way):
    """What was computed from constant weights is kept without any key."""
    if way == "plain":
        y[...] = x / np.sqrt((w * w).sum(axis=0))
        return
    if "factors" not in _scratch:
        _scratch["factors"] = 1 / np.sqrt((w.astype(np.float64) ** 2).sum(axis=0))
    np.multiply(x, _scratch["factors"].astype(np.float32), out=y)


@honest("new", "kept", sizes={"N": 30_000}, reference=lambda x: np.exp(-(x**2)))
def scratch_memory(x: tw.In("N"), y: tw.Out("N"), *, way):
    """Scratch memory is kept by size; all of it is written before it is read."""
    buffer = np.empty_like(x) if way == "new" else _scratch.setdefault(len(x), np.empty_like(x))
    np.multiply(x, x, out=buffer)
    np.negative(buffer, out=buffer)
    np.exp(buffer, out=y)


@lru_cache
def _table() -> Any:
    return np.sqrt(np.arange(256, dtype=np.float64)).astype(np.float32)


def _bytes() -> list[Any]:
    return [np.arange(60_000).astype(np.uint8), np.empty(60_000, np.float32)]


@honest("computed", "looked_up", arguments=_bytes, reference=lambda x: np.sqrt(x.astype(np.float64)))
def table_built_once(x: tw.In("N"), y: tw.Out("N"), *, way):
    """A table of all bytes is built in the first call."""
    if way == "computed":
        np.sqrt(x.astype(np.float64), out=y, casting="same_kind")
    else:
        np.take(_table(), x, out=y)


# Not the same from call to call.


@honest("once", "shuffled", sizes={"N": 20_000}, reference=lambda x: float(np.abs(x).sum()), tolerance=1e-4)
def sums_in_any_order(x: tw.In("N"), *, way):
    """The order of summation is random; results vary within the tolerance."""
    if way == "once":
        return float(np.abs(x).sum(dtype=np.float64))
    start = int(_chance.integers(1, len(x)))
    return float(np.abs(x[start:]).sum() + np.abs(x[:start]).sum())


@honest("all", "sampled", sizes={"N": 200_000}, reference=lambda x: float((x * x).mean()), tolerance=0.2)
def sampled_mean(x: tw.In("N"), *, way):
    """A mean by random samples: nine standard deviations fit the tolerance."""
    part = x.astype(np.float64) if way == "all" else x[_chance.integers(0, len(x), 4000)]
    return float((part * part).mean())


@honest("exact", "sketched", sizes={"M": 192, "N": 512}, reference=lambda x: float((x @ x.T).trace()), tolerance=0.25)
def sketched_trace(x: tw.In("M", "N"), *, way):
    """Hutchinson's estimate of a trace by random signs."""
    if way == "exact":
        return float((x @ x.T).trace())
    signs = 1 - 2 * _chance.integers(0, 2, (x.shape[1], 32)).astype(np.float32)
    return float(np.square(x @ signs).sum() / 32)


@honest("plain", "noise", sizes={"N": 10_000}, reference=np.tanh, tolerance=1e-3)
def dithered(x: tw.In("N"), y: tw.Out("N"), *, way):
    """Random noise far below the tolerance."""
    np.tanh(x, out=y)
    if way == "noise":
        y *= 1 + np.float32(1e-5) * _chance.random(len(x), dtype=np.float32)


# Very slow and very fast.


def _hard(x: Any) -> Any:
    for _ in range(40):
        x = np.sin(x) + np.cos(x)
    return x


@honest("whole", "blocks", sizes={"N": 200_000}, reference=_hard, tolerance=1e-3)
def takes_60_ms(x: tw.In("N"), y: tw.Out("N"), *, way):
    step = len(x) if way == "whole" else 4096
    for start in range(0, len(x), step):
        y[start : start + step] = _hard(x[start : start + step])


@honest("whole", "blocks", sizes={"N": 150_000}, reference=_hard, tolerance=1e-3)
def takes_25_ms_in_place(x: tw.InOut("N"), *, way):
    step = len(x) if way == "whole" else 4096
    for start in range(0, len(x), step):
        x[start : start + step] = _hard(x[start : start + step])


@honest("sum", "dot", sizes={"N": 3}, reference=lambda x: float((x * x).sum()))
def three_elements(x: tw.In("N"), *, way):
    return float((x * x).sum()) if way == "sum" else float(x.dot(x))


@honest("index", "item", sizes={"N": 1}, reference=lambda x: 2 * x)
def one_element(x: tw.In("N"), y: tw.Out("N"), *, way):
    y[0] = 2 * x[0] if way == "index" else 2 * x.item(0)


@honest("plain", "out", arguments=lambda: [np.empty(0, np.float32), np.empty(0, np.float32)], reference=np.negative)
def no_elements(x: tw.In("N"), y: tw.Out("N"), *, way):
    if way == "plain":
        y[...] = -x
    else:
        np.negative(x, out=y)
