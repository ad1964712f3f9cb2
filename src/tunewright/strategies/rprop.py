"""Minimization by resilient propagation (Rprop): it looks at the signs of the gradient only."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FIRST_STEP, LEAST_STEP, LARGEST_STEP = 0.15, 1e-3, 0.6
FASTER, SLOWER = 1.3, 0.5
"""Factors on the step of a parameter whose gradient keeps its sign, or changes it."""


def minimize(
    cost: Callable[[Array], tuple[float, Array]], start: Array, bounds: tuple[Array, Array], steps: int
) -> Array:
    """Returns the best parameters of so many steps; `cost` returns a value and its gradient."""
    theta, best = start, (np.inf, start)
    step, last = np.full(len(start), FIRST_STEP), np.zeros(len(start))
    for _ in range(steps):
        value, gradient = cost(theta)
        if value < best[0]:
            best = value, theta
        agreement = gradient * last
        factor = np.where(agreement > 0, FASTER, np.where(agreement < 0, SLOWER, 1.0))
        step = np.clip(step * factor, LEAST_STEP, LARGEST_STEP)
        last = np.where(agreement < 0, 0.0, gradient)
        theta = np.clip(theta - np.sign(last) * step, *bounds)
    return best[1]
