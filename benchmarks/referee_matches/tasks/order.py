"""Ranks of integers: exact results, and a pair of them."""

import numpy as np

from tunewright.referee import Task


def order(keys):
    places = np.argsort(keys, kind="stable")
    return keys[places], places


def inputs(rng, count):
    return (rng.integers(0, 1 << 20, count, dtype=np.int32),)


task = Task(order, inputs, [{"count": 60_000}, {"count": 9_000}], imports=None)
