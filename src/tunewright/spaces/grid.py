"""Grid: the feasible settings of knobs under rules, enumerated knob by knob and addressed by number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SpaceError
from tunewright.spaces.rule import Knob, Mask, Rule

Indices = NDArray[np.int64]

BLOCK = 1 << 20
"""Combinations evaluated at once: bounds memory and keeps the columns in cache."""

MAX_ROWS = 100_000_000
"""The largest number of rows that is enumerated for one island; sampling and local moves still work beyond it."""

MAX_RANGED = 1 << 20
"""The largest number of combinations that is enumerated for an island with a range."""

DRAWS = 1 << 15
"""Rows drawn at once by rejection sampling."""

NO_CONFIG = "no config satisfies all rules; `tunewright space` shows what each rule excludes"

MAX_DRAWS = 256
"""Rounds of rejection sampling before the island is enumerated instead."""


class Island:
    """A group of knobs connected by rules. Islands are independent, so a grid is their product."""

    def __init__(self, knobs: Sequence[Knob], rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self.knobs = _binding_order(knobs, rules)
        self.place = {knob.name: i for i, knob in enumerate(self.knobs)}
        self.combinations = prod(len(knob) for knob in self.knobs)
        last = [max(self.place[name] for name in rule.reads) for rule in rules]
        self._rules_at = [[r for r, depth in zip(rules, last, strict=True) if depth == i] for i in range(len(knobs))]

    @cached_property
    def rows(self) -> list[NDArray[Any]]:
        """The codes of all feasible rows, one column per knob, in lexical order."""
        if not self.rules:
            return [np.arange(len(self.knobs[0]), dtype=_dtype(self.knobs[0]))]
        if self.combinations >= 1 << 62:
            raise SpaceError(
                f"{self.combinations:.2g} combinations of connected knobs cannot be numbered; sample instead"
            )
        if self.combinations > MAX_RANGED and any(knob.range is not None for knob in self.knobs):
            raise SpaceError(
                f"{self.combinations:,} combinations of ranges are searched, not enumerated; "
                "give the ranges larger steps if too few of them satisfy the rules"
            )
        blocks: list[list[NDArray[Any]]] = []
        for block in self._extend([], 0):
            blocks.append(block)
            if sum(len(part[0]) for part in blocks) > MAX_ROWS:
                raise SpaceError(f"more than {MAX_ROWS:,} feasible rows; add rules, or search by sampling")
        return [
            np.concatenate([block[i] for block in blocks]) if blocks else np.empty(0, _dtype(knob))
            for i, knob in enumerate(self.knobs)
        ]

    def first(self) -> dict[str, int] | None:
        """Returns the codes of the first feasible row, without enumerating the others; None if there is none."""
        if not self.rules:
            return {self.knobs[0].name: 0}
        if (block := next(self._extend([], 0), None)) is None:
            return None
        return {knob.name: int(column[0]) for knob, column in zip(self.knobs, block, strict=True)}

    def _extend(self, bound: list[NDArray[Any]], depth: int) -> Iterator[list[NDArray[Any]]]:
        """Adds one knob, drops the rows its rules forbid, and recurses; depth first, a block at a time."""
        if depth == len(self.knobs):
            yield bound
            return
        knob = self.knobs[depth]
        values = np.arange(len(knob), dtype=_dtype(knob))
        height = len(bound[0]) if bound else 1
        step = max(1, BLOCK // len(knob))
        for start in range(0, height, step):
            part = [column[start : start + step] for column in bound]
            wide = [column[:, None] for column in part] + [values[None, :]]
            shape = (len(part[0]) if part else 1, len(knob))
            masks = [self._mask(rule, wide) for rule in self._rules_at[depth]]
            if masks:
                left, right = np.nonzero(np.logical_and.reduce([np.broadcast_to(mask, shape) for mask in masks]))
                extended = [column[left] for column in part] + [values[right]]
            else:
                extended = [np.repeat(column, len(knob)) for column in part] + [np.tile(values, shape[0])]
            if len(extended[0]):
                yield from self._extend(extended, depth + 1)

    def _mask(self, rule: Rule, codes: list[NDArray[Any]]) -> Mask:
        places = [self.place[name] for name in rule.reads]
        return rule.mask([self.knobs[i] for i in places], [codes[i] for i in places])

    def __len__(self) -> int:
        return len(self.rows[0])

    @cached_property
    def _ranks(self) -> Indices:
        """The number of each feasible row among all combinations; ascending, because rows are."""
        rank = np.zeros(len(self), dtype=np.int64)
        for knob, column in zip(self.knobs, self.rows, strict=True):
            rank *= len(knob)
            rank += column
        return rank

    def find(self, codes: dict[str, int]) -> int:
        """Returns the row of `codes`, or -1 if it is not feasible."""
        rank = 0
        for knob in self.knobs:
            rank = rank * len(knob) + codes[knob.name]
        if not self.rules:
            return rank
        row = int(np.searchsorted(self._ranks, rank))
        return row if row < len(self) and self._ranks[row] == rank else -1

    def feasible(self, codes: list[NDArray[Any]]) -> Mask:
        """Returns which rows of `codes` (a column per knob) satisfy all rules."""
        mask = np.ones(len(codes[0]), dtype=bool)
        for rule in self.rules:
            mask &= self._mask(rule, codes)
        return mask

    def sample(self, rng: np.random.Generator, count: int) -> list[NDArray[Any]]:
        """Returns `count` uniform random rows, with replacement; enumerates only if rejection sampling fails."""
        if not self.rules and self.knobs[0].range is not None:
            return [self.knobs[0].draw(rng, count).astype(_dtype(self.knobs[0]))]
        if not self.rules or "rows" in self.__dict__:
            if not len(self):
                raise SpaceError(NO_CONFIG)
            rows = rng.integers(len(self), size=count)
            return [column[rows] for column in self.rows]
        parts: list[list[NDArray[Any]]] = []
        count_found = 0
        for _ in range(MAX_DRAWS):
            columns = [knob.draw(rng, DRAWS).astype(_dtype(knob)) for knob in self.knobs]
            rows = np.flatnonzero(self.feasible(columns))
            parts.append([column[rows] for column in columns])
            count_found += len(rows)
            if count_found >= count:
                return [np.concatenate([part[i] for part in parts])[:count] for i in range(len(self.knobs))]
        # Too few rows satisfy the rules for rejection sampling; enumeration finds them or raises.
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
        """The number of feasible configs; enumerates on first use."""
        return prod(len(island) for island in self.islands)

    def first(self) -> dict[str, int] | None:
        """Returns the codes of a first config, without enumerating the others; None if there is none."""
        firsts = [island.first() for island in self.islands]
        return None if None in firsts else {name: code for first in firsts if first for name, code in first.items()}

    def codes_at(self, index: int) -> dict[str, int]:
        """Returns the code of each knob at one index."""
        codes: dict[str, int] = {}
        for island in reversed(self.islands):
            index, row = divmod(index, len(island))
            codes |= {knob.name: int(column[row]) for knob, column in zip(island.knobs, island.rows, strict=True)}
        return codes

    def find(self, codes: dict[str, int]) -> int:
        """Returns the index of `codes`, or -1 if they are not feasible."""
        index = 0
        for island in self.islands:
            if (row := island.find(codes)) < 0:
                return -1
            index = index * len(island) + row
        return index

    def columns(self, indices: Indices) -> dict[str, NDArray[Any]]:
        """Returns the codes of every knob at `indices`."""
        columns: dict[str, NDArray[Any]] = {}
        rest = indices
        for island in reversed(self.islands):
            rest, rows = np.divmod(rest, len(island))
            columns |= {knob.name: column[rows] for knob, column in zip(island.knobs, island.rows, strict=True)}
        return columns

    def fill(self, table: NDArray[Any], places: dict[str, int]) -> None:
        """Writes the codes of all configs, in order, into the columns `places` of `table`."""
        inner = self.size
        for island in self.islands:
            inner //= max(1, len(island))
            for knob, column in zip(island.knobs, island.rows, strict=True):
                table[:, places[knob.name]].reshape(-1, len(island), inner)[...] = column[None, :, None]

    def sample(self, rng: np.random.Generator, count: int) -> dict[str, NDArray[Any]]:
        """Returns `count` uniform random configs, with replacement, as codes."""
        columns: dict[str, NDArray[Any]] = {}
        for island in self.islands:
            for knob, column in zip(island.knobs, island.sample(rng, count), strict=True):
                columns[knob.name] = column
        return columns

    def feasible(self, codes: dict[str, NDArray[Any]]) -> Mask:
        """Returns which settings satisfy all rules."""
        masks = [island.feasible([codes[knob.name] for knob in island.knobs]) for island in self.islands]
        return np.asarray(np.logical_and.reduce(masks))


def _dtype(knob: Knob) -> type[np.int8] | type[np.int16] | type[np.int32]:
    return np.int8 if len(knob) < 1 << 7 else np.int16 if len(knob) < 1 << 15 else np.int32


def _binding_order(knobs: Sequence[Knob], rules: Sequence[Rule]) -> tuple[Knob, ...]:
    """Orders knobs so that rules apply early: next come those of the rule that adds the fewest combinations.

    Within a rule the largest knob comes last, where a numpy evaluation is cheapest.
    """
    sizes = {knob.name: len(knob) for knob in knobs}
    order: list[str] = []
    pending = [[name for name in rule.reads] for rule in rules]
    while pending:
        pending = [[name for name in reads if name not in order] for reads in pending]
        pending = [reads for reads in pending if reads]
        if pending:
            smallest = min(pending, key=lambda reads: prod(sizes[name] for name in reads))
            order += sorted(smallest, key=lambda name: sizes[name])
    order += [knob.name for knob in knobs if knob.name not in order]
    by_name = {knob.name: knob for knob in knobs}
    return tuple(by_name[name] for name in order)


def _islands(knobs: Sequence[Knob], rules: Sequence[Rule]) -> list[Island]:
    """Groups knobs by the rules that connect them; a knob that no rule reads is an island by itself."""
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
    return [Island(group_knobs, [r for r in rules if root(r.reads[0]) == top]) for top, group_knobs in members.items()]
