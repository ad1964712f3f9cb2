"""Space: the configs a kernel accepts, and why others are rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SpaceError
from tunewright.spaces.config import VARIANT, Config, Value, plain
from tunewright.spaces.feature import Feature
from tunewright.spaces.grid import Grid, Indices
from tunewright.spaces.ranges import Range
from tunewright.spaces.rule import Knob, Rule, require_kind

__all__ = ["Knob", "Range", "Rule", "Space", "Variant"]

PAGE = 4096


class Variant:
    """One implementation among several, with its own knobs and rules; `numerics` marks one that changes the numbers.

    Example: `Space(variants=[Variant("library"), Variant("tiled", Knob("tile", [16, 32]))])`
    """

    def __init__(self, name: str, *knobs: Knob, rules: Iterable[Rule] = (), numerics: bool = False) -> None:
        self.name = name
        self.knobs = knobs
        self.rules = tuple(rules)
        self.numerics = numerics


class Space:
    """All configs a kernel accepts: knobs, rules between them, variants to choose from, and features to learn from.

    Configs are numbered from 0. A space is the product of independent groups of knobs, so the memory and time to
    enumerate it grow with the largest group, not with the space.

    Example: `Space(Knob("m", [16, 32]), Knob("n", [16, 32]), rules=[Rule("m <= n", lambda m, n: m <= n)])`
    """

    def __init__(
        self,
        *knobs: Knob,
        rules: Iterable[Rule] = (),
        variants: Iterable[Variant] = (),
        features: Iterable[Feature] = (),
        figures: Iterable[Feature] = (),
    ) -> None:
        if figures:
            _warn("Space(figures=...) is deprecated; use Space(features=...)")
        self.knobs = knobs
        self.features = (*features, *figures)
        self.rules = tuple(rules)
        self.variants = tuple(variants)
        if not all(isinstance(knob, Knob) for knob in knobs):
            raise SpaceError('a space is made of knobs: Space(Knob("tile", [16, 32]), rules=[...], variants=[...])')
        require_kind("rules", self.rules, Rule, 'Rule("a <= b", lambda a, b: a <= b)')
        require_kind("variants", self.variants, Variant, 'Variant("tiled", Knob("tile", [16, 32]))')
        require_kind("features", self.features, Feature, 'Feature("area", lambda a, b: a * b)')
        if not knobs and not self.variants:
            raise SpaceError("a space needs at least one knob or variant")
        self._require_unique("variants", [variant.name for variant in self.variants])
        self._check_rules(self.rules, knobs)
        self._grids: dict[str | None, Grid] = {}
        for variant in self.variants:
            variant_knobs = knobs + variant.knobs
            self._require_unique(f"knobs of variant {variant.name!r}", [knob.name for knob in variant_knobs])
            self._check_rules(variant.rules, variant_knobs)
            self._grids[variant.name] = Grid(variant_knobs, self.rules + variant.rules)
        if not self.variants:
            self._require_unique("knobs", [knob.name for knob in knobs])
            self._grids[None] = Grid(knobs, self.rules)
        for feature in self.features:
            if not any(set(feature.reads) <= {knob.name for knob in grid.knobs} for grid in self._grids.values()):
                unknown = [name for name in feature.reads if name not in self.names] or feature.reads
                raise SpaceError(f"feature {feature.name!r} reads {_unknown(unknown[0], list(self.names))}")

    @property
    def figures(self) -> tuple[Feature, ...]:
        """Deprecated: use `features`."""
        _warn("Space.figures is deprecated; use Space.features")
        return self.features

    @staticmethod
    def _require_unique(what: str, names: list[str]) -> None:
        if repeated := [name for name, count in Counter(names).items() if count > 1]:
            raise SpaceError(f"{what} share the name {', '.join(map(repr, repeated))}; names must differ")

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
        """Returns this space without values that change numerics, except for the knobs and variants in `allowed`."""
        all_knobs = [*self.knobs, *(knob for variant in self.variants for knob in variant.knobs)]
        marked = {knob.name for knob in all_knobs if knob.numerics}
        marked |= {variant.name for variant in self.variants if variant.numerics}
        if unmarked := sorted(set(allowed) - marked):
            raise SpaceError(
                f"numerics allows {', '.join(map(repr, unmarked))}, but nothing of that name changes numerics; "
                f"these do: {', '.join(sorted(marked)) or 'none'}"
            )
        if marked <= set(allowed):
            return self

        def exact_knobs(knobs: Iterable[Knob]) -> list[Knob]:
            return [knob if knob.name in allowed else knob.exact() for knob in knobs]

        variants = [
            Variant(variant.name, *exact_knobs(variant.knobs), rules=variant.rules)
            for variant in self.variants
            if not variant.numerics or variant.name in allowed
        ]
        if self.variants and not variants:
            raise SpaceError("every variant changes numerics; allow one by name: numerics=[...]")
        return Space(*exact_knobs(self.knobs), rules=self.rules, variants=variants, features=self.features)

    def with_features(self, features: Iterable[Feature]) -> Space:
        """Returns this space with more features."""
        return Space(*self.knobs, rules=self.rules, variants=self.variants, features=(*self.features, *features))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All names a config may set: the variant first, then knobs as declared."""
        variant_knobs = [knob.name for variant in self.variants for knob in variant.knobs]
        return tuple(dict.fromkeys(([VARIANT] if self.variants else []) + [k.name for k in self.knobs] + variant_knobs))

    @cached_property
    def has_ranges(self) -> bool:
        """Whether a knob has a range of values: then the space is sampled, not enumerated."""
        return any(knob.range is not None for grid in self._grids.values() for knob in grid.knobs)

    @property
    def combinations(self) -> int:
        """The number of settings before rules are applied."""
        return sum(grid.combinations for grid in self._grids.values())

    @property
    def size(self) -> int:
        """The number of configs; unlike `len`, it may exceed the size of a machine word."""
        return sum(grid.size for grid in self._grids.values())

    def __len__(self) -> int:
        return self.size

    def __contains__(self, config: object) -> bool:
        return isinstance(config, Mapping) and not self.objections(config)

    def objections(self, config: Mapping[str, Any]) -> list[str]:
        """Returns the reasons why `config` is not in this space; empty if it is."""
        name = config.get(VARIANT)
        if self.variants and name not in self._grids:
            names = ", ".join(variant.name for variant in self.variants)
            return [
                f"no variant is given; variants: {names}" if name is None else f"no variant {name!r}; variants: {names}"
            ]
        knobs = {knob.name: knob for knob in self._grids[name if self.variants else None].knobs}
        named = [n for n in config if not (self.variants and n == VARIANT)]
        problems = [f"it sets {_unknown(n, list(knobs))}" for n in named if n not in knobs]
        problems += [f"it does not set {n!r}" for n in knobs if n not in config]
        problems += [
            f"{n}={config[n]!r} is not allowed; allowed: {_allowed(knob)}"
            for n, knob in knobs.items()
            if n in config and not _has(knob, config[n])
        ]
        if problems or not (rules := self._rules_of(name)):
            return problems
        given = {n: knob.given(plain(config[n])) for n, knob in knobs.items()}
        return [rule.reason for rule in rules if rule.broken_by(given)]

    def _rules_of(self, variant: Any) -> tuple[Rule, ...]:
        return self.rules + tuple(rule for v in self.variants if v.name == variant for rule in v.rules)

    def require(self, config: Mapping[str, Any]) -> Config:
        """Returns `config` as a `Config` of this space; raises SpaceError with the reasons if it is not in it."""
        if problems := self.objections(config):
            raise SpaceError(f"{dict(config)} is not in the space: {'; '.join(problems)}")
        # As the knobs have them: 16.0 and True equal 16 and 1, but are not the same to a kernel.
        knobs = {knob.name: knob for knob in self._grids[config[VARIANT] if self.variants else None].knobs}
        own = {name: knob.values[knob.codes[plain(config[name])]] for name, knob in knobs.items()}
        return Config({**config, **own})

    def __getitem__(self, index: int) -> Config:
        for variant, grid in self._grids.items():
            if 0 <= index < grid.size:
                return self._config(variant, grid, grid.codes_at(index))
            index -= grid.size
        raise IndexError(f"the space has {self.size:,} configs")

    def index(self, config: Mapping[str, Value]) -> int:
        """Returns the number of `config`; raises SpaceError with the reasons if it is not in the space."""
        offset = 0
        for variant, grid in self._grids.items():
            if variant is None or config.get(VARIANT) == variant:
                try:
                    codes = {knob.name: knob.codes[config[knob.name]] for knob in grid.knobs}
                except KeyError:
                    break
                if len(config) == len(codes) + (variant is not None) and (index := grid.find(codes)) >= 0:
                    return offset + index
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
        """Returns configs as rows of small integers, a column per name in `names`; -1 where a variant lacks the knob.

        The variant column holds the position of the variant. Without `indices`, returns all configs in order.
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
        """Returns `count` random rows of codes with replacement, without enumerating; variants are equally likely."""
        table = np.full((count, len(self.names)), -1, dtype=np.int32)
        place = {name: i for i, name in enumerate(self.names)}
        grid_numbers = rng.integers(len(self._grids), size=count)
        for number, grid in enumerate(self._grids.values()):
            rows = np.flatnonzero(grid_numbers == number)
            if len(rows):
                for name, column in grid.sample(rng, len(rows)).items():
                    table[rows, place[name]] = column
                if self.variants:
                    table[rows, 0] = number
        return table

    def sample(self, rng: np.random.Generator, count: int = 1) -> list[Config]:
        """Returns `count` random configs with replacement, without enumerating; variants are equally likely."""
        return [self.at(row) for row in self.draw(rng, count).tolist()]

    def at(self, row: Sequence[int]) -> Config:
        """Returns the config whose codes are `row`: the inverse of `rank`."""
        codes = dict(zip(self.names, row, strict=True))
        variant = self.variants[codes[VARIANT]].name if self.variants else None
        return self._config(variant, self._grids[variant], codes)

    def feature_matrix(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Returns the features of rows of codes, a column each; nan where a variant lacks the knobs."""
        matrix = np.full((len(rows), len(self.features)), np.nan)
        place = {name: i for i, name in enumerate(self.names)}
        for number, grid in enumerate(self._grids.values()):
            members = np.flatnonzero(rows[:, 0] == number) if self.variants else np.arange(len(rows))
            knobs = {knob.name: knob for knob in grid.knobs}
            for j, feature in enumerate(self.features):
                if len(members) and set(feature.reads) <= knobs.keys():
                    codes = [rows[members, place[name]] for name in feature.reads]
                    matrix[members, j] = feature.column([knobs[name] for name in feature.reads], codes)
        return matrix

    def feasible(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Returns which rows of codes are configs of this space."""
        mask = np.zeros(len(rows), dtype=bool)
        place = {name: i for i, name in enumerate(self.names)}
        for number, grid in enumerate(self._grids.values()):
            members = np.flatnonzero(rows[:, 0] == number) if self.variants else np.arange(len(rows))
            sizes = {place[knob.name]: len(knob) for knob in grid.knobs}
            for i in range(1 if self.variants else 0, len(self.names)):
                column = rows[members, i]
                members = members[(column >= 0) & (column < sizes[i]) if i in sizes else column == -1]
            if len(members) and grid.knobs:
                members = members[grid.feasible({name: rows[members, i] for name, i in place.items() if i in sizes})]
            mask[members] = True
        return mask

    def neighbors(self, config: Mapping[str, Value], reach: int | None = 1) -> list[Config]:
        """Returns the feasible configs that differ in one knob by at most `reach` steps (None: any value)."""
        variant = config.get(VARIANT) if self.variants else None
        grid = self._grids[variant if variant is None else str(variant)]
        start = {knob.name: knob.codes[config[knob.name]] for knob in grid.knobs}
        moves = [
            (knob.name, code)
            for knob in grid.knobs
            for code in knob.moves(start[knob.name])
            if reach is None or abs(code - start[knob.name]) <= reach
        ]
        if not moves:
            return []
        columns = {name: np.full(len(moves), code, dtype=np.int32) for name, code in start.items()}
        for row, (name, code) in enumerate(moves):
            columns[name][row] = code
        rows = np.flatnonzero(grid.feasible(columns))
        columns = {name: column[rows] for name, column in columns.items()}
        return list(self._configs(None if variant is None else str(variant), grid, columns, len(rows)))

    def rank(self, config: Mapping[str, Value]) -> tuple[int, ...]:
        """Returns the sort key of `config` in canonical order: by variant, then by knob as declared."""
        places = {variant.name: i for i, variant in enumerate(self.variants)}
        variant = str(config.get(VARIANT)) if self.variants else None
        grid = self._grids.get(variant)
        knobs = {knob.name: knob.codes for knob in grid.knobs} if grid else {}
        return tuple(
            places.get(str(variant), -1) if n == VARIANT else knobs.get(n, {}).get(config.get(n, ""), -1)
            for n in self.names
        )

    def sizes(self) -> dict[str, int]:
        """Returns the number of feasible configs by variant; a single entry "" without variants."""
        return {variant or "": grid.size for variant, grid in self._grids.items()}

    @cached_property
    def first(self) -> Config:
        """The first config, which is the default if the user gives none."""
        if self.has_ranges:  # too many configs to enumerate for one of them
            for variant, grid in self._grids.items():
                if (codes := grid.first()) is not None:
                    return self._config(variant, grid, codes)
        try:
            return self[0]
        except IndexError:
            raise SpaceError(
                "no config satisfies all rules; `tunewright space` shows what each rule excludes"
            ) from None
        except SpaceError:  # too large to enumerate
            return self.sample(np.random.default_rng(0))[0]


def _warn(message: str) -> None:
    import warnings  # noqa: PLC0415 - only for old names

    warnings.warn(message, DeprecationWarning, stacklevel=3)


def _has(knob: Knob, value: Any) -> bool:
    """Whether a knob allows a value, which may be a numpy scalar or the member of an enum."""
    try:
        return plain(value) in knob.codes
    except TypeError:
        return False


def _allowed(knob: Knob) -> str:
    return str(knob) if knob.range is not None else ", ".join(map(repr, knob.values))


def _unknown(name: str, known: list[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"knobs: {', '.join(known) or 'none'}"
    return f"an unknown knob {name!r}; {hint}"
