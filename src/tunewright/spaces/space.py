"""Space: what may be chosen, and why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SpaceError
from tunewright.spaces.config import VARIANT, Config, Value
from tunewright.spaces.figure import Figure
from tunewright.spaces.grid import Grid, Indices
from tunewright.spaces.rule import Knob, Rule

__all__ = ["Knob", "Rule", "Space", "Variant"]

PAGE = 4096


class Variant:
    """One implementation among several, with knobs and rules of its own; marked if it changes `numerics`."""

    def __init__(self, name: str, *knobs: Knob, rules: Iterable[Rule] = (), numerics: bool = False) -> None:
        self.name = name
        self.knobs = knobs
        self.rules = tuple(rules)
        self.numerics = numerics


class Space:
    """All configs a kernel accepts: knobs, the rules between them, and variants to choose among.

    Configs are numbered from 0. A space is the product of islands of knobs tied by rules, so that memory and
    time to enumerate grow with the largest island, not with the space.
    """

    def __init__(
        self,
        *knobs: Knob,
        rules: Iterable[Rule] = (),
        variants: Iterable[Variant] = (),
        figures: Iterable[Figure] = (),
    ) -> None:
        self.knobs = knobs
        self.figures = tuple(figures)
        self.rules = tuple(rules)
        self.variants = tuple(variants)
        if not all(isinstance(knob, Knob) for knob in knobs):
            raise SpaceError('a space is made of knobs: Space(Knob("tile", [16, 32]), rules=[...], variants=[...])')
        if not knobs and not self.variants:
            raise SpaceError("a space needs at least one knob or variant")
        self._refuse_twice("variants", [variant.name for variant in self.variants])
        self._check_rules(self.rules, knobs)
        self._grids: dict[str | None, Grid] = {}
        for variant in self.variants:
            mine = knobs + variant.knobs
            self._refuse_twice(f"knobs of variant {variant.name!r}", [knob.name for knob in mine])
            self._check_rules(variant.rules, mine)
            self._grids[variant.name] = Grid(mine, self.rules + variant.rules)
        if not self.variants:
            self._refuse_twice("knobs", [knob.name for knob in knobs])
            self._grids[None] = Grid(knobs, self.rules)
        for figure in self.figures:
            if not any(set(figure.reads) <= {knob.name for knob in grid.knobs} for grid in self._grids.values()):
                strange = [name for name in figure.reads if name not in self.names] or figure.reads
                raise SpaceError(f"figure {figure.name!r} reads {_unknown(strange[0], list(self.names))}")

    @staticmethod
    def _refuse_twice(what: str, names: list[str]) -> None:
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise SpaceError(f"{what} share the name {', '.join(map(repr, twice))}; names must differ")

    @staticmethod
    def _check_rules(rules: tuple[Rule, ...], knobs: tuple[Knob, ...]) -> None:
        known = [knob.name for knob in knobs]
        for rule in rules:
            for name in rule.reads:
                if name not in known:
                    raise SpaceError(f"rule {rule.reason!r} reads {_unknown(name, known)}")

    def __repr__(self) -> str:
        return f"<Space of {self.combinations:,} combinations, {len(self.rules)} rules, {len(self.variants)} variants>"

    def exact(self, allowed: Collection[str] = ()) -> Space:
        """This space without what changes numerics, but for the knobs and variants `allowed` by name."""
        every = [*self.knobs, *(knob for variant in self.variants for knob in variant.knobs)]
        marked = {knob.name for knob in every if knob.numerics}
        marked |= {variant.name for variant in self.variants if variant.numerics}
        if strangers := sorted(set(allowed) - marked):
            known = ", ".join(sorted(marked)) or "none"
            raise SpaceError(
                f"numerics allows {', '.join(map(repr, strangers))}, but nothing so named is marked: {known}"
            )
        if marked <= set(allowed):
            return self

        def kept(knobs: Iterable[Knob]) -> list[Knob]:
            return [knob if knob.name in allowed else knob.exact() for knob in knobs]

        variants = [
            Variant(v.name, *kept(v.knobs), rules=v.rules) for v in self.variants if not v.numerics or v.name in allowed
        ]
        if self.variants and not variants:
            raise SpaceError("every variant changes numerics; allow one by name: numerics=[...]")
        return Space(*kept(self.knobs), rules=self.rules, variants=variants, figures=self.figures)

    def knowing(self, figures: Iterable[Figure]) -> Space:
        """This space with more figures."""
        return Space(*self.knobs, rules=self.rules, variants=self.variants, figures=(*self.figures, *figures))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every name a config of this space may set: the variant first, then knobs as declared."""
        own = [knob.name for variant in self.variants for knob in variant.knobs]
        return tuple(dict.fromkeys(([VARIANT] if self.variants else []) + [k.name for k in self.knobs] + own))

    @property
    def combinations(self) -> int:
        """How many settings there are before any rule."""
        return sum(grid.combinations for grid in self._grids.values())

    @property
    def size(self) -> int:
        """How many configs there are; unlike `len`, of any magnitude."""
        return sum(grid.size for grid in self._grids.values())

    def __len__(self) -> int:
        return self.size

    def __contains__(self, config: object) -> bool:
        return isinstance(config, Mapping) and not self.objections(config)

    def objections(self, config: Mapping[str, Any]) -> list[str]:
        """Why `config` is not in this space, in words; empty if it is."""
        name = config.get(VARIANT)
        if self.variants and name not in self._grids:
            offered = ", ".join(variant.name for variant in self.variants)
            return [
                f"it names no variant; offered: {offered}"
                if name is None
                else f"no variant {name!r}; offered: {offered}"
            ]
        knobs = {knob.name: knob for knob in self._grids[name if self.variants else None].knobs}
        said = [n for n in config if not (self.variants and n == VARIANT)]
        problems = [f"it sets {_unknown(n, list(knobs))}" for n in said if n not in knobs]
        problems += [f"it does not set {n!r}" for n in knobs if n not in config]
        problems += [
            f"{n}={config[n]!r} is not offered; offered: {', '.join(map(repr, knob.values))}"
            for n, knob in knobs.items()
            if n in config and config[n] not in knob.codes
        ]
        return problems or [rule.reason for rule in self._rules_of(name) if rule.broken_by(config)]

    def _rules_of(self, variant: Any) -> tuple[Rule, ...]:
        return self.rules + tuple(rule for v in self.variants if v.name == variant for rule in v.rules)

    def require(self, config: Mapping[str, Any]) -> Config:
        """`config` as a member of this space; says what is wrong with it otherwise."""
        if problems := self.objections(config):
            raise SpaceError(f"{dict(config)} is not in the space: {'; '.join(problems)}")
        return Config(config)

    def __getitem__(self, index: int) -> Config:
        for variant, grid in self._grids.items():
            if 0 <= index < grid.size:
                return self._config(variant, grid, grid.codes_at(index))
            index -= grid.size
        raise IndexError(f"the space has {self.size:,} configs")

    def index(self, config: Mapping[str, Value]) -> int:
        """The number of `config`; a SpaceError that says why if it is not in the space."""
        offset = 0
        for variant, grid in self._grids.items():
            if variant is None or config.get(VARIANT) == variant:
                try:
                    codes = {knob.name: knob.codes[config[knob.name]] for knob in grid.knobs}
                except KeyError:
                    break
                if len(config) == len(codes) + (variant is not None) and (found := grid.find(codes)) >= 0:
                    return offset + found
                break
            offset += grid.size
        self.require(config)
        raise AssertionError("a config without objections has an index")

    def __iter__(self) -> Iterator[Config]:
        for variant, grid in self._grids.items():
            for start in range(0, grid.size, PAGE):
                page = np.arange(start, min(start + PAGE, grid.size), dtype=np.int64)
                yield from self._configs(variant, grid, grid.columns(page), len(page))

    def _configs(
        self, variant: str | None, grid: Grid, columns: dict[str, NDArray[Any]], count: int
    ) -> Iterator[Config]:
        lists = [columns[knob.name].tolist() for knob in grid.knobs]
        names = [knob.name for knob in grid.knobs]
        for row in zip(*lists, strict=True) if lists else [()] * count:
            yield self._config(variant, grid, dict(zip(names, row, strict=True)))

    @staticmethod
    def _config(variant: str | None, grid: Grid, codes: Mapping[str, int]) -> Config:
        settings: dict[str, Value] = {knob.name: knob.values[codes[knob.name]] for knob in grid.knobs}
        return Config(settings if variant is None else {VARIANT: variant, **settings})

    def codes(self, indices: Indices | None = None) -> NDArray[Any]:
        """Configs as rows of small integers, a column per name in `names`; -1 where a variant lacks the knob.

        The column of the variant holds its place. Without `indices`, all configs in order.
        """
        widest = max((len(knob) for grid in self._grids.values() for knob in grid.knobs), default=1)
        count = len(self) if indices is None else len(indices)
        table = np.empty((count, len(self.names)), dtype=np.int16 if widest < 1 << 15 else np.int32, order="F")
        if self.variants:
            table.fill(-1)
        place = {name: i for i, name in enumerate(self.names)}
        start = 0
        for number, grid in enumerate(self._grids.values()):
            stop = start + grid.size
            if indices is None:
                rows: Any = slice(start, stop)
                grid.fill(table[rows], place)
            else:
                rows = np.flatnonzero((indices >= start) & (indices < stop))
                for name, column in grid.columns(indices[rows] - start).items():
                    table[rows, place[name]] = column
            if self.variants:
                table[rows, 0] = number
            start = stop
        return table

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[Any]:
        """`count` rows of `codes` drawn with repetition, without enumerating the space; variants evenly."""
        table = np.full((count, len(self.names)), -1, dtype=np.int32)
        place = {name: i for i, name in enumerate(self.names)}
        which = rng.integers(len(self._grids), size=count)
        for number, grid in enumerate(self._grids.values()):
            rows = np.flatnonzero(which == number)
            if len(rows):
                for name, column in grid.sample(rng, len(rows)).items():
                    table[rows, place[name]] = column
                if self.variants:
                    table[rows, 0] = number
        return table

    def sample(self, rng: np.random.Generator, count: int = 1) -> list[Config]:
        """`count` configs drawn with repetition, without enumerating the space; variants are drawn evenly."""
        return [self.at(row) for row in self.draw(rng, count).tolist()]

    def at(self, row: Sequence[int]) -> Config:
        """The config whose codes are `row`: the inverse of `rank`."""
        codes = dict(zip(self.names, row, strict=True))
        variant = self.variants[codes[VARIANT]].name if self.variants else None
        return self._config(variant, self._grids[variant], codes)

    def figured(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """The figures of rows of codes, a column each; nan where a variant lacks the knobs."""
        found = np.full((len(rows), len(self.figures)), np.nan)
        place = {name: i for i, name in enumerate(self.names)}
        for number, grid in enumerate(self._grids.values()):
            mine = np.flatnonzero(rows[:, 0] == number) if self.variants else np.arange(len(rows))
            knobs = {knob.name: knob for knob in grid.knobs}
            for j, figure in enumerate(self.figures):
                if len(mine) and set(figure.reads) <= knobs.keys():
                    codes = [rows[mine, place[name]] for name in figure.reads]
                    found[mine, j] = figure.column([knobs[name] for name in figure.reads], codes)
        return found

    def feasible(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Which rows of codes are configs of this space."""
        mask = np.zeros(len(rows), dtype=bool)
        place = {name: i for i, name in enumerate(self.names)}
        for number, grid in enumerate(self._grids.values()):
            mine = np.flatnonzero(rows[:, 0] == number) if self.variants else np.arange(len(rows))
            own = {place[knob.name]: len(knob) for knob in grid.knobs}
            for i in range(1 if self.variants else 0, len(self.names)):
                column = rows[mine, i]
                mine = mine[(column >= 0) & (column < own[i]) if i in own else column == -1]
            if len(mine) and grid.knobs:
                mine = mine[grid.feasible({name: rows[mine, i] for name, i in place.items() if i in own})]
            mask[mine] = True
        return mask

    def neighbors(self, config: Mapping[str, Value], reach: int | None = 1) -> list[Config]:
        """Feasible configs that differ in one knob by at most `reach` steps (None: any value)."""
        variant = config.get(VARIANT) if self.variants else None
        grid = self._grids[variant if variant is None else str(variant)]
        here = {knob.name: knob.codes[config[knob.name]] for knob in grid.knobs}
        moves = [
            (knob.name, there)
            for knob in grid.knobs
            for there in range(len(knob))
            if there != here[knob.name] and (reach is None or abs(there - here[knob.name]) <= reach)
        ]
        if not moves:
            return []
        columns = {name: np.full(len(moves), code, dtype=np.int32) for name, code in here.items()}
        for row, (name, there) in enumerate(moves):
            columns[name][row] = there
        kept = np.flatnonzero(grid.feasible(columns))
        columns = {name: column[kept] for name, column in columns.items()}
        return list(self._configs(None if variant is None else str(variant), grid, columns, len(kept)))

    def rank(self, config: Mapping[str, Value]) -> tuple[int, ...]:
        """Where `config` stands in canonical order: by variant, then by knob as declared."""
        places = {variant.name: i for i, variant in enumerate(self.variants)}
        variant = str(config.get(VARIANT)) if self.variants else None
        grid = self._grids.get(variant)
        knobs = {knob.name: knob.codes for knob in grid.knobs} if grid else {}
        return tuple(
            places.get(str(variant), -1) if n == VARIANT else knobs.get(n, {}).get(config.get(n, ""), -1)
            for n in self.names
        )

    def sizes(self) -> dict[str, int]:
        """Feasible configs by variant; one nameless entry without variants."""
        return {variant or "": grid.size for variant, grid in self._grids.items()}

    @cached_property
    def first(self) -> Config:
        """The first config: what is taken for the default where the user names none."""
        try:
            return self[0]
        except IndexError:
            raise SpaceError("no config keeps every rule; `tunewright space` shows which rule excludes what") from None
        except SpaceError:  # too large to enumerate
            return self.sample(np.random.default_rng(0))[0]


def _unknown(name: str, known: list[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"knobs: {', '.join(known) or 'none'}"
    return f"an unknown knob {name!r}; {hint}"
