"""A sum of two scaled vectors, for functions in C and for commands."""

import numpy as np

from tunewright.referee import Task


def blend(x, y):
    return np.float32(0.75) * x + np.float32(0.25) * y


def inputs(rng, count):
    return rng.standard_normal(count, dtype=np.float32), rng.standard_normal(count, dtype=np.float32)


task = Task(blend, inputs, [{"count": 400_000}, {"count": 60_000}], imports=None)
