"""The same, for candidates that differ by a known amount of work."""

import numpy as np

from tunewright.referee import Task


def softmax(x):
    shifted = np.exp(x - x.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def inputs(rng, rows, columns):
    return (rng.standard_normal((rows, columns), dtype=np.float32),)


task = Task(softmax, inputs, [{"rows": 64, "columns": 128}])
