"""The mean of tiny squared differences: a sum that an absolute tolerance would take for zero."""

import numpy as np

from tunewright.referee import Task


def loss(x, y):
    return np.mean((x - y) ** 2, axis=1, dtype=x.dtype)


def inputs(rng, rows, columns):
    x = rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(1e-5)
    return x, x + rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(1e-6)


task = Task(loss, inputs, [{"rows": 256, "columns": 1024}, {"rows": 32, "columns": 1024}], imports=None)
