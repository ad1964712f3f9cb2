"""Honest kernels in Python whose arguments come from a function of the user: what holds for them is relied on."""

from __future__ import annotations

from typing import Any

import numpy as np

import tunewright as tw
from referee_corpus.case import honest


def sorted_edges(N: int) -> list[Any]:  # noqa: N803 - a size's name, here and below
    """Edges in order, values, and room for their places."""
    rng = np.random.default_rng(2)
    return [np.sort(rng.random(512)), rng.random(N), np.empty(N, np.int64)]


@honest("search", "sort", sizes={"N": 4000}, inputs=sorted_edges, reference=np.searchsorted)
def finds_places(edges: tw.In(512), x: tw.In("N"), place: tw.Out("N"), *, way):
    """Edges are in order."""
    if way == "search":
        place[...] = np.searchsorted(edges, x)
        return
    order = np.argsort(x)
    place[order] = np.searchsorted(edges, x[order])


def sparse(N: int) -> list[Any]:  # noqa: N803
    """A sparse matrix: where rows begin, columns, values; a vector, and room for the product."""
    rng = np.random.default_rng(3)
    begins = np.concatenate([[0], np.cumsum(rng.integers(1, 12, N))])
    columns = rng.integers(0, N, begins[-1])
    return [begins, columns, rng.random(begins[-1]), rng.random(N), np.empty(N)]


def _sparse_product(begins: Any, columns: Any, values: Any, x: Any) -> Any:
    return np.add.reduceat(values * x[columns], begins[:-1])


@honest("rows", "reduceat", "bincount", sizes={"N": 500}, inputs=sparse, reference=_sparse_product)
def sparse_product(begins: tw.In, columns: tw.In, values: tw.In, x: tw.In("N"), y: tw.Out("N"), *, way):
    if way == "rows":
        for row, (begin, end) in enumerate(zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True)):
            y[row] = values[begin:end] @ x[columns[begin:end]]
    elif way == "reduceat":
        y[...] = _sparse_product(begins, columns, values, x)
    else:
        rows = np.repeat(np.arange(len(y)), np.diff(begins))
        y[...] = np.bincount(rows, values * x[columns], minlength=len(y))


def probabilities(N: int) -> list[Any]:  # noqa: N803
    """Rows that sum to one."""
    rows = np.random.default_rng(4).random((64, N))
    return [rows / rows.sum(axis=1, keepdims=True), np.empty(64)]


@honest("sum", "rest", sizes={"N": 200}, inputs=probabilities, reference=lambda p: 1 - (p * p).sum(axis=1))
def impurity(p: tw.In(64, "N"), y: tw.Out(64), *, way):
    """Gini's impurity: the two formulas are equal because rows sum to one."""
    y[...] = 1 - (p * p).sum(axis=1) if way == "sum" else (p * (1 - p)).sum(axis=1)


def cumulated(N: int) -> list[Any]:  # noqa: N803
    """A cumulated distribution, which ends with one, and random numbers below one."""
    rng = np.random.default_rng(5)
    steps = rng.random(256).cumsum()
    return [steps / steps[-1], rng.random(N), np.empty(N)]


def _steps(cdf: Any, u: Any) -> Any:
    return np.arange(256.0)[np.searchsorted(cdf, u, side="right")]


@honest("search", "table", sizes={"N": 4000}, inputs=cumulated, reference=_steps)
def draws_from(cdf: tw.In(256), u: tw.In("N"), y: tw.Out("N"), *, way):
    """Numbers by the inverse of a distribution: one is never passed."""
    values = np.arange(256) if way == "search" else np.arange(256.0)
    y[...] = values[np.searchsorted(cdf, u, side="right")]


def directions(N: int) -> list[Any]:  # noqa: N803
    """Vectors of length one."""
    x, y = np.random.default_rng(6).standard_normal((2, N, 64))
    return [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (x, y)] + [np.empty((N, N))]


@honest("divided", "trusted", sizes={"N": 128}, inputs=directions, reference=lambda x, y: x @ y.T)
def cosines(x: tw.In("N", 64), y: tw.In("N", 64), c: tw.Out("N", "N"), *, way):
    """Cosines of angles; vectors have length one, so nothing need be divided."""
    np.matmul(x, y.T, out=c)
    if way == "divided":
        c /= np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(y, axis=1)


def symmetric(N: int) -> list[Any]:  # noqa: N803
    """A symmetric matrix with positive eigenvalues, a vector, and room for a solution."""
    rng = np.random.default_rng(7)
    half = rng.standard_normal((N, N))
    return [half @ half.T / N + np.eye(N), rng.standard_normal(N), np.empty(N)]


@honest("solve", "cholesky", sizes={"N": 64}, inputs=symmetric, reference=np.linalg.solve)
def solves(a: tw.In("N", "N"), b: tw.In("N"), x: tw.Out("N"), *, way):
    """The matrix is symmetric, and has positive eigenvalues."""
    if way == "solve":
        x[...] = np.linalg.solve(a, b)
        return
    lower = np.linalg.cholesky(a)
    x[...] = np.linalg.solve(lower.T, np.linalg.solve(lower, b))


def permutation(N: int) -> list[Any]:  # noqa: N803
    """Places, each once, and values."""
    rng = np.random.default_rng(8)
    return [rng.permutation(N), rng.random(N, dtype=np.float32), np.empty(N, np.float32)]


@honest("gather", "scatter", sizes={"N": 20_000}, inputs=permutation, reference=lambda place, x: x[np.argsort(place)])
def reorders(place: tw.In("N"), x: tw.In("N"), y: tw.Out("N"), *, way):
    """Each place occurs once, so all of the output is written."""
    if way == "gather":
        y[...] = x[np.argsort(place)]
    else:
        y[place] = x


def lists() -> list[Any]:
    """A plain list of numbers."""
    return [np.random.default_rng(9).random(2000).tolist()]


@honest("sorted", "sort", sizes={}, inputs=lists)
def sorts_a_list(values, *, way):
    """A list is changed in place."""
    if way == "sorted":
        values[:] = sorted(values)
    else:
        values.sort()


def large_and_small(N: int) -> list[Any]:  # noqa: N803
    """Numbers of very different sizes, some not normal."""
    rng = np.random.default_rng(10)
    return [(10.0 ** rng.integers(-43, 30, N)).astype(np.float32), np.empty(N, np.float32)]


@honest("double", "single", sizes={"N": 10_000}, inputs=large_and_small, reference=np.sqrt)
def roots_of_extremes(x: tw.In("N"), y: tw.Out("N"), *, way):
    y[...] = np.sqrt(x.astype(np.float64)) if way == "double" else np.sqrt(x)
