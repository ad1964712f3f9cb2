"""The same, with little time to load."""

import numpy as np

from tunewright.referee import ChildLimits, Task


def softmax(x):
    shifted = np.exp(x - x.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def inputs(rng, rows, columns):
    return (rng.standard_normal((rows, columns), dtype=np.float32),)


SHAPES = [{"rows": 256, "columns": 512}]
task = Task(softmax, inputs, SHAPES, imports=None, limits=ChildLimits(memory=512 << 20, seconds=5.0, start_seconds=6.0))
