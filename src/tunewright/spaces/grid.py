"""Grid: the feasible settings of some knobs under some rules, enumerated in stages, addressed by number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SpaceError
from tunewright.spaces.rule import Knob, Mask, Rule

Indices = NDArray[np.int64]

BLOCK = 1 << 20
"""Combinations looked at in one numpy evaluation: bounds memory, and keeps the columns in cache."""

MOST_ROWS = 100_000_000
"""Rows of one island beyond which we refuse to enumerate; sampling and local moves still work."""

DRAWS = 1 << 15
PATIENCE = 256


class Island:
    """Knobs tied together by rules. Islands know nothing of each other, so a grid is their product."""

    def __init__(self, knobs: Sequence[Knob], rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self.knobs = _binding_order(knobs, rules)
        self.place = {knob.name: i for i, knob in enumerate(self.knobs)}
        self.combinations = prod(len(knob) for knob in self.knobs)
        bound = [frozenset(self.place[name] for name in rule.reads) for rule in rules]
        self._due = [[r for r, reads in zip(rules, bound, strict=True) if max(reads) == i] for i in range(len(knobs))]

    @cached_property
    def rows(self) -> list[NDArray[Any]]:
        """Codes of every feasible row, one column per knob, in lexical order."""
        if not self.rules:
            return [np.arange(len(self.knobs[0]), dtype=_dtype(self.knobs[0]))]
        if self.combinations >= 1 << 62:
            raise SpaceError(f"{self.combinations:.2g} combinations tied by rules cannot be numbered; sample instead")
        found: list[list[NDArray[Any]]] = []
        self._extend([], 0, found)
        return [
            np.concatenate([block[i] for block in found]) if found else np.empty(0, _dtype(knob))
            for i, knob in enumerate(self.knobs)
        ]

    def _extend(self, bound: list[NDArray[Any]], depth: int, found: list[list[NDArray[Any]]]) -> None:
        """Bind one more knob, drop what its rules forbid, and go on; depth first, a block at a time."""
        if depth == len(self.knobs):
            found.append(bound)
            if sum(len(block[0]) for block in found) > MOST_ROWS:
                raise SpaceError(f"more than {MOST_ROWS:,} feasible rows; add rules, or search by sampling")
            return
        knob = self.knobs[depth]
        fresh = np.arange(len(knob), dtype=_dtype(knob))
        height = len(bound[0]) if bound else 1
        step = max(1, BLOCK // len(knob))
        for start in range(0, height, step):
            part = [column[start : start + step] for column in bound]
            wide = [column[:, None] for column in part] + [fresh[None, :]]
            shape = (len(part[0]) if part else 1, len(knob))
            masks = [self._mask(rule, wide) for rule in self._due[depth]]
            if masks:
                left, right = np.nonzero(np.logical_and.reduce([np.broadcast_to(mask, shape) for mask in masks]))
                grown = [column[left] for column in part] + [fresh[right]]
            else:
                grown = [np.repeat(column, len(knob)) for column in part] + [np.tile(fresh, shape[0])]
            if len(grown[0]):
                self._extend(grown, depth + 1, found)

    def _mask(self, rule: Rule, codes: list[NDArray[Any]]) -> Mask:
        places = [self.place[name] for name in rule.reads]
        return rule.mask([self.knobs[i] for i in places], [codes[i] for i in places])

    def __len__(self) -> int:
        return len(self.rows[0])

    @cached_property
    def _ranks(self) -> Indices:
        """The place of each feasible row among all combinations; ascending, because rows are."""
        rank = np.zeros(len(self), dtype=np.int64)
        for knob, column in zip(self.knobs, self.rows, strict=True):
            rank *= len(knob)
            rank += column
        return rank

    def find(self, codes: dict[str, int]) -> int:
        """The row of `codes`, or -1 if it is not feasible."""
        rank = 0
        for knob in self.knobs:
            rank = rank * len(knob) + codes[knob.name]
        if not self.rules:
            return rank
        row = int(np.searchsorted(self._ranks, rank))
        return row if row < len(self) and self._ranks[row] == rank else -1

    def feasible(self, codes: list[NDArray[Any]]) -> Mask:
        """Which rows of `codes` (a column per knob) keep every rule."""
        mask = np.ones(len(codes[0]), dtype=bool)
        for rule in self.rules:
            mask &= self._mask(rule, codes)
        return mask

    def sample(self, rng: np.random.Generator, count: int) -> list[NDArray[Any]]:
        """`count` rows drawn evenly with repetition; never enumerates what is not enumerated yet."""
        if not self.rules or "rows" in self.__dict__:
            if not len(self):
                raise SpaceError("no config keeps every rule; `tunewright space` shows which rule excludes what")
            rows = rng.integers(len(self), size=count)
            return [column[rows] for column in self.rows]
        parts: list[list[NDArray[Any]]] = []
        have = 0
        for _ in range(PATIENCE):
            drawn = [rng.integers(len(knob), size=DRAWS).astype(_dtype(knob)) for knob in self.knobs]
            kept = np.flatnonzero(self.feasible(drawn))
            parts.append([column[kept] for column in drawn])
            have += len(kept)
            if have >= count:
                return [np.concatenate([part[i] for part in parts])[:count] for i in range(len(self.knobs))]
        # So few keep the rules that drawing is hopeless: enumeration in stages finds them, or says why not.
        _ = self.rows
        return self.sample(rng, count)


class Grid:
    """The feasible settings of one set of knobs: the product of its islands."""

    def __init__(self, knobs: Sequence[Knob], rules: Sequence[Rule]) -> None:
        self.knobs = tuple(knobs)
        self.islands = _islands(knobs, rules)
        self.combinations = prod(len(knob) for knob in knobs)

    @cached_property
    def size(self) -> int:
        """How many configs are feasible; enumerates on first use."""
        return prod(len(island) for island in self.islands)

    def codes_at(self, index: int) -> dict[str, int]:
        """The code of each knob at one index."""
        codes: dict[str, int] = {}
        for island in reversed(self.islands):
            index, row = divmod(index, len(island))
            codes |= {knob.name: int(column[row]) for knob, column in zip(island.knobs, island.rows, strict=True)}
        return codes

    def find(self, codes: dict[str, int]) -> int:
        """The index of `codes`, or -1 if they are not feasible."""
        index = 0
        for island in self.islands:
            if (row := island.find(codes)) < 0:
                return -1
            index = index * len(island) + row
        return index

    def columns(self, indices: Indices) -> dict[str, NDArray[Any]]:
        """The codes of every knob at `indices`."""
        found: dict[str, NDArray[Any]] = {}
        rest = indices
        for island in reversed(self.islands):
            rest, rows = np.divmod(rest, len(island))
            found |= {knob.name: column[rows] for knob, column in zip(island.knobs, island.rows, strict=True)}
        return found

    def fill(self, table: NDArray[Any], places: dict[str, int]) -> None:
        """Write the codes of all configs, in order, into the columns `places` of `table`."""
        inner = self.size
        for island in self.islands:
            inner //= max(1, len(island))
            for knob, column in zip(island.knobs, island.rows, strict=True):
                table[:, places[knob.name]].reshape(-1, len(island), inner)[...] = column[None, :, None]

    def sample(self, rng: np.random.Generator, count: int) -> dict[str, NDArray[Any]]:
        """`count` configs drawn evenly with repetition, as codes."""
        drawn: dict[str, NDArray[Any]] = {}
        for island in self.islands:
            for knob, column in zip(island.knobs, island.sample(rng, count), strict=True):
                drawn[knob.name] = column
        return drawn

    def feasible(self, codes: dict[str, NDArray[Any]]) -> Mask:
        """Which of many settings keep every rule."""
        masks = [island.feasible([codes[knob.name] for knob in island.knobs]) for island in self.islands]
        return np.asarray(np.logical_and.reduce(masks))


def _dtype(knob: Knob) -> type[np.int8] | type[np.int16] | type[np.int32]:
    return np.int8 if len(knob) < 1 << 7 else np.int16 if len(knob) < 1 << 15 else np.int32


def _binding_order(knobs: Sequence[Knob], rules: Sequence[Rule]) -> tuple[Knob, ...]:
    """Knobs ordered so that rules apply early: next, those of the rule that adds fewest combinations.

    Within a rule the largest knob comes last, where a numpy evaluation is cheapest.
    """
    sizes = {knob.name: len(knob) for knob in knobs}
    order: list[str] = []
    waiting = [[name for name in rule.reads] for rule in rules]
    while waiting:
        waiting = [[name for name in reads if name not in order] for reads in waiting]
        waiting = [reads for reads in waiting if reads]
        if waiting:
            nearest = min(waiting, key=lambda reads: prod(sizes[name] for name in reads))
            order += sorted(nearest, key=lambda name: sizes[name])
    order += [knob.name for knob in knobs if knob.name not in order]
    named = {knob.name: knob for knob in knobs}
    return tuple(named[name] for name in order)


def _islands(knobs: Sequence[Knob], rules: Sequence[Rule]) -> list[Island]:
    """Knobs grouped by the rules that tie them; a knob no rule reads is an island of its own."""
    group = {knob.name: knob.name for knob in knobs}

    def root(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    for rule in rules:
        for name in rule.reads[1:]:
            group[root(name)] = root(rule.reads[0])
    members: dict[str, list[Knob]] = {}
    for knob in knobs:
        members.setdefault(root(knob.name), []).append(knob)
    return [Island(tied, [rule for rule in rules if root(rule.reads[0]) == top]) for top, tied in members.items()]
