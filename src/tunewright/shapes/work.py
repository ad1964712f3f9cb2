"""Work that a config may do on a shape: products of one factor for each size.

A factor is 1, the size, or what a tile makes of it: the size padded to whole tiles, their number, the number of full
ones, and what they leave over.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from math import prod

import numpy as np

from tunewright.shapes.features import Features
from tunewright.shapes.table import Floats, Indices

TILED = 2
"""Sizes of which tiles make something in one product: more fit trials better, and other shapes worse."""

TILES = 3
"""Tiles of each size of which factors are made; fewer if there were too many products."""

MAX_PRODUCTS = 10_000

UNTILED, BY_TILE = 2, 4
"""Factors of a size without tiles, and with each tile."""


class Work:
    """All products, given the tiles of each size, those that matter most first."""

    def __init__(self, features: Features, tiles: Sequence[Sequence[tuple[str, ...]]]) -> None:
        kept = next((n for n in range(TILES, 0, -1) if _count([len(own[:n]) for own in tiles]) <= MAX_PRODUCTS), 0)
        self._tiles = [[features.tiles[knobs] for knobs in own[:kept]] for own in tiles]
        self._configs = len(features.levels)
        counts = [len(own) for own in self._tiles]
        self.products: Indices = _products(counts) if _count(counts) <= MAX_PRODUCTS else np.zeros((1, len(tiles)), int)

    def of(self, sizes: Floats, products: Indices, configs: Indices | None = None) -> Floats:
        """Returns how much of each product (rows) each config (columns) does."""
        chosen = np.arange(self._configs) if configs is None else configs
        done = np.ones((len(products), len(chosen)))
        for size, tiles, factors in zip(sizes.tolist(), self._tiles, products.T, strict=True):
            done *= _factors(size, [tile[chosen] for tile in tiles], len(chosen))[factors]
        return done


def _factors(size: float, tiles: Sequence[Floats], count: int) -> Floats:
    rows = [np.ones(count), np.full(count, size)]
    for tile in tiles:
        number = np.ceil(size / tile)
        rows += [number * tile, number, np.floor(size / tile), np.mod(size, tile)]
    return np.stack(rows)


def _count(tiles: Sequence[int]) -> int:
    """Returns how many products there are, given the number of tiles of each size."""
    return sum(
        prod(BY_TILE * tiles[size] for size in tiled) * UNTILED ** (len(tiles) - len(tiled))
        for tiled in _tiled_sizes(len(tiles))
    )


def _tiled_sizes(sizes: int) -> list[tuple[int, ...]]:
    return [tiled for count in range(min(TILED, sizes) + 1) for tiled in combinations(range(sizes), count)]


def _products(tiles: Sequence[int]) -> Indices:
    """Returns the factors of all products: a row each, a column for each size."""
    found = []
    for tiled in _tiled_sizes(len(tiles)):
        first = [UNTILED if size in tiled else 0 for size in range(len(tiles))]
        count = [BY_TILE * tiles[size] if size in tiled else UNTILED for size in range(len(tiles))]
        found += list(product(*(range(start, start + own) for start, own in zip(first, count, strict=True))))
    return np.array(found, dtype=np.intp)
