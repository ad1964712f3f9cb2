"""Candidate configs of a space as rows of codes: enumerated if the space is small, else sampled."""

from __future__ import annotations

from itertools import product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SpaceError
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space

Rows = NDArray[Any]

MAX_ENUMERATED = 1 << 16
"""Configs up to which a space is enumerated."""

SAMPLE_SIZE = 4096
"""Configs sampled from the whole space at once."""

MAX_STEPS = 2048
"""Configs sampled around one config that has more neighbors than this."""


class Candidates(Protocol):
    """Configs that a search may propose. All rows returned are feasible, and neither tried nor proposed yet."""

    def mark_seen(self, config: Config) -> bool:
        """Mark `config` as seen. Returns whether it was new."""
        ...

    def neighbors(self, row: Rows) -> Rows:
        """Rows that differ from `row` in one knob."""
        ...

    def adjacent(self, row: Rows, rng: np.random.Generator) -> Rows:
        """Rows that differ from `row` by at most one step in every knob."""
        ...

    def sample(self, rng: np.random.Generator, *, whole: bool = False) -> Rows:
        """Rows from the whole space, with `whole` as many as possible; empty only if the space is exhausted."""
        ...


def candidates_for(space: Space) -> Candidates:
    """Returns the candidates of `space`, enumerated if that is cheap."""
    if space.combinations <= 1 << 24 and not space.has_ranges:
        try:
            if space.size <= MAX_ENUMERATED:
                return EnumeratedCandidates(space)
        except SpaceError:
            pass
    return SampledCandidates(space)


class EnumeratedCandidates:
    """All configs of a space in one table."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._table = space.codes().astype(np.int32)
        self._unseen = np.ones(len(self._table), dtype=bool)

    def mark_seen(self, config: Config) -> bool:
        """Mark `config` as seen. Returns whether it was new."""
        index = self._space.index(config)
        unseen, self._unseen[index] = bool(self._unseen[index]), False
        return unseen

    def neighbors(self, row: Rows) -> Rows:
        """Rows that differ from `row` in one knob, or in the variant and its own knobs."""
        differs = self._table != row
        mask = differs.sum(1) == 1
        if self._space.variants:
            mask |= differs[:, 0] & ((differs & (self._table >= 0) & (row >= 0)).sum(1) == 1)
        return np.asarray(self._table[mask & self._unseen])

    def adjacent(self, row: Rows, rng: np.random.Generator) -> Rows:
        """Rows that differ from `row` by at most one step in every knob."""
        return np.asarray(self._table[(np.abs(self._table - row).max(1) <= 1) & self._unseen])

    def sample(self, rng: np.random.Generator, *, whole: bool = False) -> Rows:
        """Rows from the whole space."""
        unseen = np.flatnonzero(self._unseen)
        if not whole and len(unseen) > SAMPLE_SIZE:
            unseen = rng.choice(unseen, SAMPLE_SIZE, replace=False)
        return np.asarray(self._table[unseen])


class SampledCandidates:
    """Samples of a space too large to enumerate."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._seen: set[bytes] = set()
        knobs = [*space.knobs, *(knob for variant in space.variants for knob in variant.knobs)]
        # The largest knob of each name; what is no code of a variant's own knob is not feasible.
        self._knobs = [
            max((knob for knob in knobs if knob.name == name), key=len, default=None) for name in space.names
        ]
        self._ranges = [(i, knob.range) for i, knob in enumerate(self._knobs) if knob and knob.range is not None]

    def mark_seen(self, config: Config) -> bool:
        """Mark `config` as seen. Returns whether it was new."""
        row = np.array(self._space.rank(config), dtype=np.int32).tobytes()
        unseen = row not in self._seen
        self._seen.add(row)
        return unseen

    def neighbors(self, row: Rows) -> Rows:
        """Rows that differ from `row` in one knob."""
        moves = [
            (i, code)
            for i, knob in enumerate(self._knobs)
            if row[i] >= 0
            for code in (knob.moves(int(row[i])) if knob else range(len(self._space.variants)))
            if code != row[i]
        ]
        rows = np.tile(np.asarray(row, dtype=np.int32), (len(moves), 1))
        if moves:
            columns, codes = np.array(moves).T
            rows[np.arange(len(moves)), columns] = codes
        return self._keep_new(rows)

    def adjacent(self, row: Rows, rng: np.random.Generator) -> Rows:
        """Rows that differ from `row` by at most one step in every knob."""
        present = [i for i, code in enumerate(row) if code >= 0]
        if 3 ** len(present) <= MAX_STEPS:
            steps = np.array(list(product((-1, 0, 1), repeat=len(present))), dtype=np.int32)
        else:
            steps = rng.integers(-1, 2, size=(MAX_STEPS, len(present)), dtype=np.int32)
            # Many steps at once often break a rule and end far away, so most moves change only some knobs.
            steps *= rng.random((MAX_STEPS, len(present))) < rng.random((MAX_STEPS, 1))
        if self._ranges:
            steps = np.tile(steps, (max(1, MAX_STEPS // len(steps)), 1))  # each step with several strides
        rows = np.tile(np.asarray(row, dtype=np.int32), (len(steps), 1))
        for i, values in self._ranges:
            if i in present:
                steps[:, present.index(i)] *= values.strides(rows[:, i], rng)
        rows[:, present] += steps
        return self._keep_new(np.unique(rows, axis=0))

    def sample(self, rng: np.random.Generator, *, whole: bool = False) -> Rows:
        """Rows from the whole space."""
        for _ in range(8):
            if len(
                rows := self._keep_new(
                    np.unique(self._space.draw(rng, 4 * SAMPLE_SIZE if whole else SAMPLE_SIZE), axis=0)
                )
            ):
                return rows
        return rows

    def _keep_new(self, rows: Rows) -> Rows:
        rows = rows[self._space.feasible(rows)]
        unseen = [row.tobytes() not in self._seen for row in rows]
        return np.asarray(rows[np.array(unseen, dtype=bool)])
