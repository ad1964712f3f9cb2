"""A kernel that nobody times: how long a config takes on a shape is a formula."""

from itertools import product
from math import ceil

import numpy as np
import pytest

from tunewright.shapes.table import ShapeTable
from tunewright.spaces.config import Config

CONFIGS = [Config(TM=tm, TN=tn, PACK=pack) for tm, tn, pack in product((1, 2, 4, 8), (8, 16, 32), (0, 1))]
SHAPES = [(m, n) for m in (1, 3, 6, 8, 17, 64, 100) for n in (8, 20, 48, 96, 250)]


def modeled_seconds(m: int, n: int, config: Config) -> float:
    """Padded work, cheaper by larger tiles; packing costs as much as one row, and makes all others cheaper."""
    rows, columns = ceil(m / config["TM"]) * config["TM"], ceil(n / config["TN"]) * config["TN"]
    work = rows * columns * (1 + 1 / config["TM"]) * (1 + 4 / config["TN"])
    return 1e-9 * work * (0.85 + 1.5 / m if config["PACK"] else 1)


@pytest.fixture
def modeled() -> ShapeTable:
    """Every config on every shape, with two percent of noise."""
    rng = np.random.default_rng(0)
    return ShapeTable.of(
        ({"M": m, "N": n}, config, modeled_seconds(m, n, config) * float(np.exp(rng.normal(0, 0.02))))
        for m, n in SHAPES
        for config in CONFIGS
    )


@pytest.fixture(scope="session")
def many() -> ShapeTable:
    """Every config on thousands of shapes, without noise."""
    drawn = np.random.default_rng(0).integers(1, 1000, (4000, 2)).tolist()
    shapes = tuple(dict.fromkeys((m, n) for m, n in drawn))[:2000]
    seconds = np.array([[modeled_seconds(m, n, config) for config in CONFIGS] for m, n in shapes])
    return ShapeTable(("M", "N"), shapes, tuple(CONFIGS), seconds, np.ones(len(shapes)))


@pytest.fixture
def small() -> ShapeTable:
    """Three configs: the first for small M, the second for large, the third nearly as good for all but the largest."""
    times = {4: (1.0, 2.0, 1.04), 8: (1.0, 1.5, 1.02), 64: (3.0, 1.0, 1.03), 500: (4.0, 1.0, 1.5)}
    return ShapeTable.of(({"M": m}, Config(x=x), t) for m, row in times.items() for x, t in enumerate(row))
