"""Predicts which structures suit a product, from times measured on other products."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from math import log, log2
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunewright.backends.host import cpu
from tunewright.mlir.payload import Payload
from tunewright.mlir.processor import ELEMENT_BYTES, vector_lanes
from tunewright.spaces.config import VARIANT, Config, Value
from tunewright.strategies.forest import Forest

TABLES = "structure_times.json"
"""Measured rows: `benchmarks/mlir_structures.py --record`."""

PARTS = ("unpacked", "packed", "panels", "columns", "ordered", "tiles", "dots")
"""Parts of structures, by the words in their names."""

FAILED, SLOWEST = 16.0, 16.0
"""How many times the best time a config counts that failed, and at most."""

TREES, LEVELS = 64, 8

FEW = (3, 2)
"""Structures to try first, and configs of each."""

Times = Sequence[tuple[Mapping[str, Value], float | None]]


class Core(msgspec.Struct, frozen=True):
    """A core of a processor: bytes of its caches, and float32 lanes of its vectors."""

    l1: int
    l2: int
    lanes: int

    @classmethod
    def here(cls) -> Core:
        """Returns one of this processor."""
        limits = cpu().limits
        return cls(limits.get("l1", 1 << 15), limits.get("l2", 1 << 20), vector_lanes())


@dataclass(frozen=True)
class ProductShape:
    """Sizes and element of a product."""

    batches: int
    rows: int
    columns: int
    terms: int
    element: str = "f32"

    @classmethod
    def of(cls, payload: Payload) -> ProductShape | None:
        """Returns the shape of the product in a payload; None if it has none, or several, or one of unknown sizes."""
        products = [op for op in payload.operations if op.kind in ("linalg.matmul", "linalg.batch_matmul")]
        if len(products) != 1 or None in products[0].sizes or products[0].elements[0] not in ELEMENT_BYTES:
            return None
        *around, rows, columns, terms = (size or 1 for size in products[0].sizes)
        return cls(int(np.prod(around, dtype=int)), rows, columns, terms, products[0].elements[0])

    def features(self, config: Mapping[str, Value], core: Core) -> list[float]:
        """Returns what a prediction is made from: sizes, parts, blocks, bytes beside caches, and padding."""
        bytes_each, words = ELEMENT_BYTES[self.element], str(config[VARIANT]).split()
        numbers = {name: int(config.get(name, 0)) for name in ("mr", "nr", "kr", "pk", "nc")}
        high, wide, deep = (max(1, numbers[name]) for name in ("mr", "nr", "kr"))
        held = numbers["nc"] or self.columns
        vectors = wide / core.lanes
        return [
            *map(log2, (self.batches, self.rows, self.columns, self.terms, bytes_each)),
            *(float(part in words) for part in PARTS),
            *(log2(1 + number) for number in numbers.values()),
            high * vectors / (high + vectors),
            log2(held * self.terms * bytes_each / core.l2),
            log2(wide * self.terms * bytes_each / core.l1),
            log2(self.columns * self.terms * bytes_each / core.l2),
            log2(self.rows * self.terms * bytes_each / core.l2),
            *(-size % block / size for size, block in ((self.rows, high), (self.columns, wide), (self.terms, deep))),
            float("ijk".find(str(config.get("order", ""))[:1])),
        ]


class Table(msgspec.Struct, frozen=True):
    """Measured times of a product: configs with the time relative to others of the table, None if they failed."""

    name: str
    batches: int
    rows: int
    columns: int
    terms: int
    element: str
    core: Core
    times: list[tuple[dict[str, Value], float | None]]

    @property
    def shape(self) -> ProductShape:
        """The product."""
        return ProductShape(self.batches, self.rows, self.columns, self.terms, self.element)


def shipped_tables() -> list[Table]:
    """Returns the tables of the package."""
    text = resources.files("tunewright.mlir").joinpath(TABLES).read_bytes()
    return msgspec.json.decode(text, type=list[Table])


class StructureModel:
    """Predicts the logarithm of the time of configs, relative to the best one of their payload.

    `structures` are those of which it has seen times; tables without any say nothing.
    """

    def __init__(self, tables: Collection[Table]) -> None:
        tables = [table for table in tables if any(time for _, time in table.times)]
        self.structures = {config[VARIANT] for table in tables for config, _ in table.times}
        points, values = [], []
        for table in tables:
            best = min(time for _, time in table.times if time)
            for config, time in table.times:
                points.append(table.shape.features(config, table.core))
                values.append(log(min(time / best, SLOWEST) if time else FAILED))
        self._forest = Forest(np.random.default_rng(0), trees=TREES, levels=LEVELS)
        if points:
            self._forest.fit(np.array(points, dtype=np.float32), np.array(values))

    def predict(self, shape: ProductShape, configs: Sequence[Config], core: Core) -> NDArray[np.float64]:
        """Returns the prediction for each config on a core."""
        points: list[Any] = [shape.features(config, core) for config in configs]
        return self._forest.predict(np.array(points, dtype=np.float32))[0]

    def first(
        self, shape: ProductShape, configs: Sequence[Config], few: tuple[int, int] = FEW, core: Core | None = None
    ) -> list[Config]:
        """Returns the configs to try first: of each of the best structures in turn, those that look best.

        `few` is how many structures, and how many configs of each; the core is one of this processor unless given.
        """
        structures, each = few
        order = [configs[i] for i in np.argsort(self.predict(shape, configs, core or Core.here()), kind="stable")]
        by_structure: dict[Value, list[Config]] = {}
        for config in order:
            by_structure.setdefault(config[VARIANT], []).append(config)
        chosen = [found[:each] for found in list(by_structure.values())[:structures]]
        return [found[i] for i in range(each) for found in chosen if i < len(found)]
