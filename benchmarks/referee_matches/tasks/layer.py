"""A linear layer whose weights are constant: a candidate may keep what it makes of them."""

import numpy as np

from tunewright.referee import Task


def layer(x, weights, bias):
    return np.maximum(x @ weights + bias, 0)


def inputs(rng, batch, wide, out):
    x = rng.standard_normal((batch, wide), dtype=np.float32)
    return x, rng.standard_normal((wide, out), dtype=np.float32), rng.standard_normal(out, dtype=np.float32)


SHAPES = [{"batch": 256, "wide": 384, "out": 256}, {"batch": 64, "wide": 384, "out": 256}]
task = Task(layer, inputs, SHAPES, constant=["weights", "bias"], imports=None)
