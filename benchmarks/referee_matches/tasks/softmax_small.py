"""The same on a few rows: launches are so short that they come in batches."""

import numpy as np

from tunewright.referee import Task


def softmax(x):
    shifted = np.exp(x - x.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def inputs(rng, rows, columns):
    return (rng.standard_normal((rows, columns), dtype=np.float32),)


task = Task(softmax, inputs, [{"rows": 16, "columns": 128}, {"rows": 24, "columns": 96}], imports=None)
