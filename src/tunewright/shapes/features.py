"""Features of a shape and a config together: knobs, sizes, and how tiles divide sizes.

Nothing is known of what a knob means. A number that is never below 1 may be a tile of any size, and so may the product
of two of them: `MR` of M, `NR * VW` of N. Each such pair is a group of features that a model may take or leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tunewright.shapes.table import Floats, Indices
from tunewright.spaces.config import Config

MAX_LEVELS = 12
"""Knobs with more values are grouped into as many ranges."""

MAX_PAIRS = 600
"""Columns for two knobs at once; spaces that need more get none."""

MAX_TILES = 36
"""Numbers that may be tiles; products of two are left out beyond it."""

MAX_KEPT = 64
"""Shapes whose features are kept, since models are made again and again."""

PER_TILE = 8
"""Features of a size and a tile."""

MAX_ALIGNED = 10
"""Powers of two that divide a size, as far as they count: caches put rows at distances of 1024 floats in one place."""


@dataclass(frozen=True)
class TileGroup:
    """A size, and the knobs whose product is its tile."""

    size: int
    knobs: tuple[str, ...]


class Features:
    """The columns of a model: knobs, sizes and their alignment first (`base`), then `PER_TILE` for each of `groups`."""

    def __init__(self, dimensions: int, configs: Sequence[Config]) -> None:
        names = list(dict.fromkeys(name for config in configs for name in config))
        columns = {name: [config.get(name) for config in configs] for name in names}
        levels = [_levels(column) for column in columns.values()]
        levels = [level for level in levels if level.shape[1] > 1]
        knobs = np.repeat(np.arange(len(levels)), [level.shape[1] for level in levels])
        self.levels = np.concatenate(levels, axis=1) if levels else np.zeros((len(configs), 0))
        self._config_only = np.concatenate([self.levels, _pairs(levels, len(configs))], axis=1)
        self.tiles = _tiles(columns)
        self.groups = [TileGroup(size, knobs) for knobs in self.tiles for size in range(dimensions)]
        self.base = self._config_only.shape[1] + 3 * dimensions * self.levels.shape[1]
        self.count = self.base + PER_TILE * len(self.groups)
        self.parts = self._parts(knobs, 3 * dimensions)
        self._kept: dict[tuple[float, ...], Floats] = {}

    def _parts(self, knobs: Indices, crossed: int) -> Indices:
        """Returns which part of a model each column belongs to.

        Each knob is one, all pairs of knobs are one, each knob with each feature of a shape is one, and each group.
        """
        own = int(knobs.max(initial=-1)) + 1
        pairs = np.full(self._config_only.shape[1] - len(knobs), own)
        shapes = own + 1 + (own * np.arange(crossed)[:, None] + knobs).ravel()
        tiles = own + 1 + own * crossed + np.repeat(np.arange(len(self.groups)), PER_TILE)
        return np.unique(np.concatenate([knobs, pairs, shapes, tiles]), return_inverse=True)[1]

    def columns(self, group: int) -> slice:
        """Returns the columns of a group."""
        start = self.base + PER_TILE * group
        return slice(start, start + PER_TILE)

    def of(self, sizes: Floats, configs: Indices | None = None) -> Floats:
        """Returns the features of some configs on a shape, a row each; without `configs`, of all.

        Those of all configs are kept for the last shapes.
        """
        place = tuple(sizes.tolist())
        if configs is not None and place not in self._kept:
            return self._make(sizes, configs)
        if place not in self._kept:
            while len(self._kept) >= MAX_KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[place] = self._make(sizes, np.arange(len(self.levels)))
        return self._kept[place] if configs is None else self._kept[place][configs]

    def base_of(self, sizes: Floats, configs: Indices) -> Floats:
        """Returns the columns of the base of some configs, relative to their mean over all configs."""
        crossed = _crossed(self.levels[configs] - self.levels.mean(axis=0), _of_shape(sizes))
        return np.concatenate([self._config_only[configs] - self._config_only.mean(axis=0), crossed], axis=1)

    def _make(self, sizes: Floats, configs: Indices) -> Floats:
        crossed = _crossed(self.levels[configs], _of_shape(sizes))
        tiled = [division(sizes[group.size], self.tiles[group.knobs][configs]) for group in self.groups]
        return np.concatenate([self._config_only[configs], crossed, *tiled], axis=1)


def knob_columns(configs: Sequence[Config]) -> Floats:
    """Returns knobs as places between 0 and 1: numbers by their logarithm, other values by a column each."""
    names = list(dict.fromkeys(name for config in configs for name in config))
    columns = [np.zeros((len(configs), 0))]
    for name in names:
        values = [config.get(name) for config in configs]
        if not all(isinstance(value, int | float) for value in values):
            columns.append(_levels(values))
        elif len(set(values)) > 1:
            numbers = np.array(values, dtype=np.float64)
            logs = np.log2(numbers) if numbers.min() > 0 else np.sign(numbers) * np.log2(1 + np.abs(numbers))
            columns.append(((logs - logs.min()) / np.ptp(logs))[:, None])
    return np.concatenate(columns, axis=1)


def shape_columns(sizes: Floats) -> Floats:
    """Returns the logarithms of sizes, and how many powers of two divide them: a row for each shape."""
    return np.concatenate([np.log2(sizes) / 4, 4 * _alignment(sizes)], axis=1)


def _alignment(sizes: Floats) -> Floats:
    """Returns how many powers of two divide each size, between 0 and a half."""
    whole = sizes.astype(np.int64)
    return np.asarray(np.log2(np.minimum(whole & -whole, 2**MAX_ALIGNED)) / (2 * MAX_ALIGNED))


def _crossed(knobs: Floats, shape: Floats) -> Floats:
    return (knobs[:, None, :] * shape[:, None]).reshape(len(knobs), knobs.shape[1] * len(shape))


def _of_shape(sizes: Floats) -> Floats:
    """Returns logarithms, inverses, and how many powers of two divide each size, between 0 and a half."""
    return np.concatenate([np.log2(sizes) / 5, 4 / sizes, _alignment(sizes)])


def division(size: float, tile: Floats) -> Floats:
    """Returns how tiles divide a size.

    Work padded, work left over, steps if what is left over is done one by one, one over the number of tiles, the
    logarithm of that number, work left over if each step of it costs four tiles, and the length of a tile: what is done
    once for each is shared by so many.
    """
    counts, rest = np.ceil(size / tile), np.mod(size, tile)
    padded = np.log(np.minimum(counts * tile / size, 8))
    left = np.log1p(3 * rest / size)
    steps = np.log(np.minimum((np.floor(size / tile) + rest) * tile / size, 8))
    number = np.clip(np.log2(size / tile), -2, 4) / 4
    dear, length = np.log1p(4 * tile * rest / size), np.minimum(size, tile)
    return np.stack([padded, left, steps, 1 / counts, number, dear, np.log2(length) / 3, 4 / length], axis=1)


def _levels(column: Sequence[object]) -> Floats:
    """Returns a column of ones and zeros for each value, or for each range of values if there are many."""
    values = list(dict.fromkeys(column))
    if len(values) > MAX_LEVELS and all(isinstance(value, int | float) for value in values):
        numbers = np.array(column, dtype=np.float64)
        edges = np.unique(np.quantile(numbers, np.linspace(0, 1, MAX_LEVELS + 1)[1:-1]))
        codes = np.searchsorted(edges, numbers, side="right")
    else:
        places = {value: i for i, value in enumerate(values)}
        codes = np.array([places[value] for value in column])
    return np.asarray(np.equal(codes[:, None], np.unique(codes)[None, :]), dtype=np.float64)


def _pairs(levels: Sequence[Floats], rows: int) -> Floats:
    """Returns a column for each two values of two knobs that occur together."""
    nothing = np.zeros((rows, 0))
    if sum(left.shape[1] * right.shape[1] for left, right in combinations(levels, 2)) > MAX_PAIRS:
        return nothing
    parts = [(left[:, :, None] * right[:, None, :]).reshape(rows, -1) for left, right in combinations(levels, 2)]
    joined = np.concatenate([nothing, *parts], axis=1)
    return joined[:, joined.any(axis=0)]


def _tiles(columns: Mapping[str, Sequence[object]]) -> dict[tuple[str, ...], Floats]:
    """Returns what may be a tile: knobs that are numbers of at least 1, and products of two of them."""
    single: dict[tuple[str, ...], Floats] = {}
    single |= {(name,): np.array(values, dtype=np.float64) for name, values in columns.items() if _may_tile(values)}
    products = {left + right: single[left] * single[right] for left, right in combinations(single, 2)}
    if len(single) + len(products) > MAX_TILES:
        products = {}
    return single | products


def _may_tile(values: Sequence[object]) -> bool:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return len(numbers) == len(values) and len(set(numbers)) > 1 and min(numbers) >= 1
