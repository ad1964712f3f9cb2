"""Random configs among which each value of a knob is about as frequent as any other."""

from __future__ import annotations

import numpy as np

from tunewright.shapes.table import Floats

CANDIDATES = 24
"""Random configs of which the one with the rarest values is taken."""

TOGETHER = 0.5
"""How much the values of configs that are drawn together count, beside those of all that were drawn before."""


class BalancedDraws:
    """Draws configs by number; none comes again before all others came."""

    def __init__(self, levels: Floats, rng: np.random.Generator) -> None:
        """Takes a row for each config: a column for each value of each knob, of ones and zeros."""
        self._levels, self._rng = levels, rng
        self._drawn = np.zeros(len(levels), dtype=np.intp)

    def next(self, count: int, without: int | None = None) -> list[int]:
        """Returns so many different configs, another than `without`."""
        chosen: list[int] = []
        for _ in range(count):
            left = np.setdiff1d(np.arange(len(self._levels)), [*chosen, *([] if without is None else [without])])
            left = left[self._drawn[left] == self._drawn[left].min()]
            some = self._rng.permutation(left)[:CANDIDATES]
            chosen.append(int(some[(self._levels[some] @ self._frequencies(chosen)).argmin()]))
            self._drawn[chosen[-1]] += 1
        return chosen

    def _frequencies(self, chosen: list[int]) -> Floats:
        """Returns how frequent each value is in what was drawn."""
        before = self._drawn @ self._levels / max(1, int(self._drawn.sum()))
        return np.asarray(before + TOGETHER * self._levels[chosen].sum(axis=0) / max(1, len(chosen)))
