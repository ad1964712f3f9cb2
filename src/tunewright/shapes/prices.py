"""Prices of work that explain times: few, none of them negative, found one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tunewright.shapes.table import Floats, Indices

PRICES, MIN_PRICES = 24, 4
"""How many there are at most, and how many are looked for if trials are few."""

TRIALS_PER_PRICE = 6

MIN_NORM = 0.02
"""Work that configs with one value of a knob do has a price of its own if it is at least this share of all such work,
as a norm."""

TINY = float(np.finfo(np.float64).tiny)

Single = NDArray[np.float32]


@dataclass(frozen=True)
class Prices:
    """What a unit of some work costs configs with some level of a knob: numbers of products and levels."""

    products: Indices
    levels: Indices
    prices: Floats


class PricedTrials:
    """Work (rows) done by trials (columns) per second that they took, and which of the levels each trial has."""

    def __init__(self, done: Floats, levels: Floats) -> None:
        self._norms = np.maximum(np.sqrt((done**2).mean(axis=1)), TINY)
        self._done: Single = (done / self._norms[:, None]).astype(np.float32)
        self._squares: Single = self._done**2
        self._levels: Single = levels.astype(np.float32)

    def fit(self, used: NDArray[np.bool_]) -> Prices:
        """Returns the prices at which the work of the trials that are used takes one second, as nearly as possible."""
        levels = self._levels * used
        norms = np.sqrt(self._squares @ levels.T)
        norms[norms < MIN_NORM * np.sqrt(used.sum())] = np.inf
        columns, chosen, prices = list[Floats](), list[tuple[int, int]](), np.zeros(0)
        missed = used.astype(np.float64)
        for _ in range(int(np.clip(used.sum() // TRIALS_PER_PRICE, MIN_PRICES, PRICES))):
            gains = (self._done @ (levels * missed.astype(np.float32)).T) / norms
            product, level = np.unravel_index(int(gains.argmax()), gains.shape)
            if gains[product, level] <= 0:
                break
            norms[product, level] = np.inf
            chosen.append((int(product), int(level)))
            columns.append((self._done[product] * levels[level]).astype(np.float64))
            prices = nonnegative_solution(np.stack(columns, axis=1), used.astype(np.float64), np.append(prices, 0.0))
            missed = used - prices @ np.stack(columns)
        products, of_levels = np.array(chosen, dtype=np.intp).T
        return Prices(products, of_levels, prices / self._norms[products])


def nonnegative_solution(rows: Floats, wanted: Floats, first: Floats) -> Floats:
    """Returns the least-squares solution without negative numbers (Lawson and Hanson).

    `first` is that of some of the columns, with zeros for the others.
    """
    gram, moment = rows.T @ rows, rows.T @ wanted
    gram += 1e-9 * np.diag(gram).max() * np.eye(len(gram))
    found, free = first.copy(), first > 0
    for _ in range(3 * len(found)):
        slope = np.where(free, -np.inf, moment - gram @ found)
        if slope.max() <= 1e-9 * np.abs(moment).max():
            break
        free[int(slope.argmax())] = True
        while free.any():
            solved = np.zeros_like(found)
            solved[free] = np.linalg.solve(gram[np.ix_(free, free)], moment[free])
            below = free & (solved <= 0)
            if not below.any():
                found = solved
                break
            step = float((found[below] / (found[below] - solved[below])).min())
            found = np.where(free, found + step * (solved - found), 0.0)
            free &= found > 1e-12 * found.max()
            found[~free] = 0.0
    return found
