"""Terrain: a space as rows of codes to walk on; whole where it is small, else what sampling and local moves find."""

from __future__ import annotations

from itertools import product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SpaceError
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space

Rows = NDArray[Any]

WHOLE = 1 << 16
"""Configs up to which a space is walked whole."""

SPREAD = 4096
"""Configs looked at in one glance over the whole space."""

STEPS = 2048
"""Configs looked at around one, where there are too many to see all."""


class Terrain(Protocol):
    """Where a search can go. Rows returned are feasible and fresh: neither tried nor proposed yet."""

    def note(self, config: Config) -> bool:
        """`config` is no longer fresh; whether it was until now."""
        ...

    def near(self, row: Rows) -> Rows:
        """Rows that differ from `row` in one knob."""
        ...

    def around(self, row: Rows, rng: np.random.Generator) -> Rows:
        """Rows that differ from `row` by at most one step in every knob."""
        ...

    def anywhere(self, rng: np.random.Generator, *, whole: bool = False) -> Rows:
        """Rows from all over the space, the `whole` of it if that can be; none only when the space is exhausted."""
        ...


def terrain_of(space: Space) -> Terrain:
    """The terrain of `space`: enumerated if that is cheap."""
    if space.combinations <= 1 << 24:
        try:
            if space.size <= WHOLE:
                return WholeTerrain(space)
        except SpaceError:
            pass
    return SampledTerrain(space)


class WholeTerrain:
    """Every config of the space in one table."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._table = space.codes().astype(np.int32)
        self._fresh = np.ones(len(self._table), dtype=bool)

    def note(self, config: Config) -> bool:
        """`config` is no longer fresh; whether it was until now."""
        index = self._space.index(config)
        fresh, self._fresh[index] = bool(self._fresh[index]), False
        return fresh

    def near(self, row: Rows) -> Rows:
        """Rows that differ from `row` in one knob, or in the variant and what comes with it."""
        apart = self._table != row
        mask = apart.sum(1) == 1
        if self._space.variants:
            mask |= apart[:, 0] & ((apart & (self._table >= 0) & (row >= 0)).sum(1) == 1)
        return np.asarray(self._table[mask & self._fresh])

    def around(self, row: Rows, rng: np.random.Generator) -> Rows:
        """Rows that differ from `row` by at most one step in every knob."""
        return np.asarray(self._table[(np.abs(self._table - row).max(1) <= 1) & self._fresh])

    def anywhere(self, rng: np.random.Generator, *, whole: bool = False) -> Rows:
        """Rows from all over the space."""
        fresh = np.flatnonzero(self._fresh)
        return np.asarray(
            self._table[fresh if whole or len(fresh) <= SPREAD else rng.choice(fresh, SPREAD, replace=False)]
        )


class SampledTerrain:
    """A space too large to enumerate."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._seen: set[bytes] = set()
        knobs = [*space.knobs, *(knob for variant in space.variants for knob in variant.knobs)]
        self._lengths = [
            max((len(knob) for knob in knobs if knob.name == name), default=len(space.variants)) for name in space.names
        ]

    def note(self, config: Config) -> bool:
        """`config` is no longer fresh; whether it was until now."""
        row = np.array(self._space.rank(config), dtype=np.int32).tobytes()
        fresh = row not in self._seen
        self._seen.add(row)
        return fresh

    def near(self, row: Rows) -> Rows:
        """Rows that differ from `row` in one knob."""
        moves = [
            (i, code)
            for i, length in enumerate(self._lengths)
            if row[i] >= 0
            for code in range(length)
            if code != row[i]
        ]
        rows = np.tile(np.asarray(row, dtype=np.int32), (len(moves), 1))
        if moves:
            which, codes = np.array(moves).T
            rows[np.arange(len(moves)), which] = codes
        return self._open(rows)

    def around(self, row: Rows, rng: np.random.Generator) -> Rows:
        """Rows that differ from `row` by at most one step in every knob."""
        here = [i for i, code in enumerate(row) if code >= 0]
        if 3 ** len(here) <= STEPS:
            steps = np.array(list(product((-1, 0, 1), repeat=len(here))), dtype=np.int32)
        else:
            steps = rng.integers(-1, 2, size=(STEPS, len(here)), dtype=np.int32)
            # Many steps at once seldom keep the rules, nor do they stay near: most moves keep some knobs.
            steps *= rng.random((STEPS, len(here))) < rng.random((STEPS, 1))
        rows = np.tile(np.asarray(row, dtype=np.int32), (len(steps), 1))
        rows[:, here] += steps
        return self._open(np.unique(rows, axis=0))

    def anywhere(self, rng: np.random.Generator, *, whole: bool = False) -> Rows:
        """Rows from all over the space."""
        for _ in range(8):
            if len(rows := self._open(np.unique(self._space.draw(rng, 4 * SPREAD if whole else SPREAD), axis=0))):
                return rows
        return rows

    def _open(self, rows: Rows) -> Rows:
        rows = rows[self._space.feasible(rows)]
        fresh = [row.tobytes() not in self._seen for row in rows]
        return np.asarray(rows[np.array(fresh, dtype=bool)])
