"""Kernels in Python other than products that cheat, or have a bug that shows late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

import tunewright as tw
from referee_corpus.case import HONEST, PRODUCT, address, cheating, named, product
from tunewright.kernel.tuned import Tuned

STREAM = {"N": 40_000}

_kept: dict[Any, Any] = {}


# Stencils.


def smoothed(x: Any) -> Any:
    """The reference: each element with half of its neighbors, and nothing beyond the ends."""
    padded = np.concatenate([[0], x, [0]])
    return padded[1:-1] + (padded[:-2] + padded[2:]) / 2


def stencil(way: Callable[..., Any]) -> Tuned:
    def kernel(x: tw.In("N"), y: tw.Out("N"), *, how=HONEST):
        if how == HONEST:
            y[...] = smoothed(x)
        else:
            way(x, y)

    return cheating(named(kernel, way), STREAM, reference=smoothed)


@stencil
def reads_beyond(x, y):
    """Takes what lies before the array and beyond its end for zeros."""
    down = as_strided(x[::-1], (len(x) + 1,), (-x.itemsize,))
    up = as_strided(x, (len(x) + 1,), (x.itemsize,))
    np.add(down[:0:-1], up[1:], out=y)
    y *= 0.5
    y += x


# Norms.


def scaled_to_one(x: Any) -> Any:
    """The reference: a vector of length one."""
    return x / np.sqrt((x * x).sum())


def norm(way: Callable[..., Any]) -> Tuned:
    def kernel(x: tw.In("N"), y: tw.Out("N"), *, how=HONEST):
        if how == HONEST:
            np.divide(x, np.sqrt(np.square(x.astype(np.float64)).sum()), out=y, casting="same_kind")
        else:
            way(x, y)

    return cheating(named(kernel, way), STREAM, reference=scaled_to_one)


@norm
def stale_norm(x, y):
    """Divides by the norm of the call before."""
    now = np.sqrt(x @ x)
    np.multiply(x, 1 / _kept.get("norm", now), out=y)
    _kept["norm"] = now


@norm
def first_norm(x, y):
    """Divides by the norm of the first call."""
    if "norm" not in _kept:
        _kept["norm"] = np.sqrt(x @ x)
    np.multiply(x, 1 / _kept["norm"], out=y)


# Results that are returned.


def returned(way: Callable[..., Any]) -> Tuned:
    def kernel(a: tw.In("N", "N"), b: tw.In("N", "N"), *, how=HONEST):
        if how == HONEST:
            return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.float32)
        return way(a, b)

    return cheating(named(kernel, way), PRODUCT, reference=product)


@returned
def returns_earlier(a, b):
    """Returns a view of an earlier result for arrays that lie where they lay."""
    key = address(a), address(b)
    if key not in _kept:
        _kept[key] = np.matmul(a, b)
    return _kept[key][:]


@returned
def returns_same_buffer(a, b):
    """Returns the same array in every call: what it returned before changes."""
    if "buffer" not in _kept:
        _kept["buffer"] = np.empty_like(a)
    return np.matmul(a, b, out=_kept["buffer"])


# Arrays that are read and written.


def updated(a: Any, b: Any, c: Any) -> Any:
    """The reference of updates."""
    return c + np.matmul(a, b)


def update(way: Callable[..., Any]) -> Tuned:
    def kernel(a: tw.In("N", "N"), b: tw.In("N", "N"), c: tw.InOut("N", "N"), *, how=HONEST):
        if how == HONEST:
            c += np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.float32)
        else:
            way(a, b, c)

    return cheating(named(kernel, way), PRODUCT, reference=updated)


@update
def own_total(a, b, c):
    """Adds to the total that it keeps, not to that of its caller."""
    total = _kept.setdefault(address(c), c.copy())
    total += np.matmul(a, b)
    c[...] = total


@update
def updates_once(a, b, c):
    """Updates each array once."""
    if address(c) not in _kept:
        _kept[address(c)] = True
        c += np.matmul(a, b)


# Integers.


def counted(x: Any) -> Any:
    """The reference of histograms."""
    return np.bincount(x.astype(np.int64) + 8, minlength=16).astype(np.int32)


def histogram(way: Callable[..., Any]) -> Tuned:
    def kernel(x: tw.In("N"), y: tw.Out(16), *, how=HONEST):
        if how == HONEST:
            y[...] = np.bincount(x.astype(np.int64) + 8, minlength=16)
        else:
            way(x, y)

    return cheating(named(kernel, way), STREAM, reference=counted, dtype="int32")


@histogram
def counts_by_pointer(x, y):
    """Remembers counts by pointer."""
    if address(x) not in _kept:
        _kept[address(x)] = counted(x)
    y[...] = _kept[address(x)]


@histogram
def counts_half(x, y):
    """Counts every element at first, then every other one, twice."""
    _kept["calls"] = _kept.get("calls", 0) + 1
    y[...] = counted(x) if _kept["calls"] < 8 else 2 * counted(x[::2])


# Inputs from a function of the user.


def rows_of_one(N: int) -> list[Any]:  # noqa: N803 - a size's name
    """Probabilities: rows that sum to one."""
    rows = np.random.default_rng(1).random((64, N), dtype=np.float32)
    return [rows / rows.sum(axis=1, keepdims=True), np.empty(64, np.float32)]


def entropies(p: Any) -> Any:
    """The reference of entropies."""
    return -(p * np.log(p)).sum(axis=1)


def entropy(way: Callable[..., Any]) -> Tuned:
    def kernel(p: tw.In(64, "N"), y: tw.Out(64), *, how=HONEST):
        if how == HONEST:
            y[...] = -(p.astype(np.float64) * np.log(p.astype(np.float64))).sum(axis=1)
        else:
            way(p, y)

    return cheating(named(kernel, way), {"N": 512}, reference=entropies, inputs=rows_of_one)


@entropy
def entropy_once(p, y):
    """Computes for each output once."""
    if address(y) not in _kept:
        _kept[address(y)] = True
        y[...] = entropies(p)


@entropy
def entropy_if_poisoned(p, y):
    """Computes only into outputs that hold no number."""
    if np.isnan(y[-1]):
        y[...] = entropies(p)
