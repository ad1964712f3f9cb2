"""Real kernels, mutants and controls, that were written after the linter, which was never tried on them before."""

from __future__ import annotations

import numpy as np
from lint_kernels import CHUNKS, PLACE, SCALAR, SIZE, VALUES, Planted, dear

import tunewright as tw


def first_negative(x: tw.In("N"), *, way):
    """A loop ends where it finds something."""
    if way == "plain":
        return next((i for i, v in enumerate(x) if v < 0), -1)
    found = np.flatnonzero(x < 0)
    return int(found[0]) if len(found) else -1


def all_the_same(x: tw.In("N"), *, way):
    if way == "other" and np.unique(x).size == 1:
        return float(dear(x[:1]).sum() * len(x))
    return float(dear(x).sum())


def until_small_enough(x: tw.In("N"), limit: float = 0.1, *, way):
    """As many steps as the limit asks for, or a function that takes always as long."""
    if way == "plain":
        left, steps = np.abs(x), 0
        while steps < 60 and left.max() > limit:
            left, steps = left / 2, steps + 1
    else:
        dear(dear(x))
    return float(x.sum())


def middle(x: tw.In("N"), *, way):
    """Numpy's median costs much before it begins."""
    if way == "plain":
        return float(np.median(x))
    ordered, half = sorted(x.tolist()), len(x) // 2
    return ordered[half] if len(x) % 2 else (ordered[half - 1] + ordered[half]) / 2


def trusted(x: tw.In("N"), *, way):
    """What nobody can write to need not be looked through again."""
    if way == "plain":
        return float(np.tanh(x).sum() * 0 + x.sum())
    return float(x.sum() if not x.flags.writeable else x.sum() + 0 * dear(x).sum())


def squared_norm(a: tw.In("N"), b: tw.In("N"), *, way):
    if way == "plain":
        return float((np.tanh(a) * 0 + a * b).sum())
    return float(np.square(a).sum()) if a is b else float((dear(a) * 0 + a * b).sum())


def reciprocals(x: tw.In("N"), y: tw.Out("N"), *, way):
    for start in range(0, len(x), way):
        np.reciprocal(np.abs(x[start : start + way]) + 1, out=y[start : start + way])


def clipped(x: tw.In("N"), y: tw.Out("N"), *, way):
    if way == "plain":
        np.minimum(np.maximum(x, -1.0, out=y), 1.0, out=y)
    else:
        y[:] = [min(max(v, -1.0), 1.0) for v in x.tolist()]


def outer(a: tw.In("N"), b: tw.In("N"), *, way):
    return np.multiply.outer(a, b) if way == "plain" else np.array([v * b for v in a])


def largest(x: tw.In("N"), scale: float = 2.0, *, way):
    return float((scale * x).max()) if way == "plain" else float(np.sort(scale * np.sort(x))[[0, -1]].max())


FRESH = [
    Planted("first_negative", first_negative, {"N": 2000}, frozenset({VALUES})),
    Planted("all_the_same", all_the_same, {"N": 2000}, frozenset({VALUES})),
    Planted("until_small_enough", until_small_enough, {"N": 2000}, frozenset({SCALAR})),
    Planted("middle", middle, {"N": 4096}, frozenset({SIZE}), {"buckets": {"N": [4096]}}),
    Planted("trusted", trusted, {"N": 2000}, frozenset({PLACE})),
    Planted("squared_norm", squared_norm, {"N": 2000}, frozenset({PLACE}), {"tolerance": 1e-6}),
    Planted("reciprocals", reciprocals, {"N": 4096}, ways=CHUNKS),
    Planted("clipped", clipped, {"N": 2000}),
    Planted("outer", outer, {"N": 100}),
    Planted("largest", largest, {"N": 2000}),
]
