"""A product whose inputs are always the same kind: the second matrix is nearly the identity. It declares its work."""

import numpy as np

from tunewright.referee import Task


def product(a, b):
    return a @ b


def inputs(rng, n):
    b = np.eye(n, dtype=np.float32)
    b[0, 0] = 1 + rng.random(dtype=np.float32)
    return rng.standard_normal((n, n), dtype=np.float32), b


task = Task(product, inputs, [{"n": 640}], imports=None, structured=True, flops=lambda n: 2 * n**3, nbytes=lambda n: 0)
