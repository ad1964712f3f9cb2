"""Few configs for many shapes: a set of which every shape has one that is nearly as fast as its own best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SettingsError
from tunewright.report.cover_plot import CurvePoint
from tunewright.report.formatting import counted
from tunewright.shapes.table import Floats, ShapeTable
from tunewright.spaces.config import Config

MAX_CONFIGS = 400
"""No smaller set is looked for than one of more configs."""

DRAWS = 400
"""How often times are drawn to see what their errors mean for the regret."""

MAX_STEPS, MAX_WORK = 100_000, 10_000_000
"""Steps of the search for a smaller set, and steps times shapes; beyond it, the set is not known to be the smallest."""


@dataclass(frozen=True)
class Cover:
    """Configs by their place in the table, and which of them serves each shape.

    `known` is the table with all shapes, and `table` that of those with a config that works. `regret` is that of each
    shape with its config. `is_smallest` says whether no smaller set exists. `sure` is how likely each shape is within
    the share, given the errors of its times; below `confidence` where no config is surer.
    """

    known: ShapeTable
    table: ShapeTable
    within: float
    configs: tuple[int, ...]
    serves: tuple[int, ...]
    is_smallest: bool
    confidence: float
    sure: tuple[float, ...]

    @property
    def unsure(self) -> list[int]:
        """The shapes whose times are too noisy for the confidence."""
        return [shape for shape, sure in enumerate(self.sure) if sure < self.confidence]

    @property
    def regret(self) -> Floats:
        """By which share each shape is slower than with its own best config."""
        return self.table.regret[range(len(self.serves)), list(self.serves)]

    def shapes_of(self, config: int) -> list[int]:
        """Returns the shapes that a config serves."""
        return [shape for shape, served in enumerate(self.serves) if served == config]

    def describe(self, config: int) -> str:
        """Returns what a config is for: `5 shapes: M 5 to 32, N 400 to 1024, K 50`."""
        shapes = self.shapes_of(config)
        sizes = self.table.sizes[shapes].astype(int)
        ranges = [
            f"{name} {low}" if low == high else f"{name} {low} to {high}"
            for name, low, high in zip(self.table.names, sizes.min(axis=0), sizes.max(axis=0), strict=True)
        ]
        return f"{counted(len(shapes), 'shape')}: {', '.join(ranges)}"

    def config(self, place: int) -> Config:
        """Returns the config at a place of the table."""
        return self.table.configs[place]

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Which configs a rule may choose for each shape: verified on its bucket, and failed on no shape of it."""
        return _allowed(self.known)


def cover(table: ShapeTable, within: float, confidence: float = 0.9) -> Cover:
    """Returns the smallest set of configs of which every shape has one within a share of its own best.

    Only a config that worked on a shape may serve it, or one that is estimated there, since it was verified on another
    shape of the bucket; one that failed on a shape of the bucket may not, unless no other works. It must be near with
    this confidence, as far as the errors of times are known; where no config of a shape is, the surest is taken.
    """
    if not 0 <= within < float("inf"):
        raise SettingsError(f"--within is a share of at least 0, such as 5%; {within} is not")
    known, table = table, _tried_part(table)
    sure = probability_within(table, within)
    allowed = _allowed(known)
    sure = np.where(allowed | ~(allowed & table.works).any(axis=1, keepdims=True), sure, 0.0)
    near = sure >= np.minimum(confidence, sure.max(axis=1, keepdims=True))
    masks = {int(c): _mask(near[:, c]) for c in np.flatnonzero(near.any(axis=0))}
    masks = _without_dominated(masks, table.regret)
    greedy = _greedy(masks, (1 << len(near)) - 1)
    found, is_smallest = _Search(masks, len(near), greedy).run()
    # Of those that are near, the one with the least regret serves.
    serves = [
        min(found, key=lambda config: (not near[i, config], regret[config], config))
        for i, regret in enumerate(table.regret)
    ]
    chances = tuple(float(sure[i, config]) for i, config in enumerate(serves))
    return Cover(known, table, within, tuple(sorted(found)), tuple(serves), is_smallest, confidence, chances)


def probability_within(table: ShapeTable, within: float) -> Floats:
    """Returns how likely each config is within a share of the best of each shape, if times vary by their errors.

    The best is one that was verified.
    """
    if table.errors is None:
        return (table.regret <= within).astype(np.float64)
    found, rng = np.zeros_like(table.seconds), np.random.default_rng(0)
    for shape in range(len(table.shapes)):
        works = np.flatnonzero(table.works[shape])
        drawn = rng.standard_normal((DRAWS, len(works))) * table.errors[shape, works]
        drawn += np.log(table.seconds[shape, works])
        least = drawn[:, table.verified[shape, works]].min(axis=1, keepdims=True)
        found[shape, works] = (drawn <= least + np.log1p(within)).mean(axis=0)
    return found


def curve(table: ShapeTable, most: int = 16) -> list[CurvePoint]:
    """Returns the regret by the number of configs; each config is the one that lowers the mean regret most.

    Configs that serve more shapes, by their weights, come before all others. It ends where all shapes have their best.
    """
    table = _tried_part(table)
    weights = table.weights / table.weights.sum()
    best = np.full(len(table.shapes), np.inf)
    points: list[CurvePoint] = []
    while len(points) < min(most, len(table.configs)) and best.any():
        regret = np.minimum(best[:, None], table.regret)
        unserved = np.round(weights @ np.isinf(regret), 9)
        means = weights @ np.where(np.isinf(regret), 0, regret)
        best = regret[:, int(np.lexsort((means, unserved))[0])]
        served = np.isfinite(best)
        mean = float(weights[served] @ best[served] / weights[served].sum())
        points.append(CurvePoint(len(points) + 1, mean, float(best[served].max()), int((~served).sum())))
    return points


def _tried_part(table: ShapeTable) -> ShapeTable:
    """Returns the shapes that have a config that works."""
    if not table.timed:
        raise SettingsError("no config works on any shape; tune the kernel first: tunewright tune FILE.py:NAME")
    return table.part(table.timed)


def _allowed(table: ShapeTable) -> NDArray[np.bool_]:
    """Returns which configs may serve the shapes that have one that works, by what failed on all shapes."""
    return np.asarray(table.verified_on_bucket[table.timed])


def _mask(flags: Iterable[bool]) -> int:
    return sum(1 << i for i, flag in enumerate(flags) if flag)


def _without_dominated(masks: dict[int, int], regret: Floats) -> dict[int, int]:
    """Returns the configs that serve something that no other config serves with the same shapes and more.

    Of those that serve the same shapes, the one with the least regret on them stays.
    """

    def cost(config: int) -> float:
        return float(sum(r for i, r in enumerate(regret[:, config]) if masks[config] >> i & 1))

    ordered = sorted(masks, key=lambda config: (-masks[config].bit_count(), cost(config), config))
    kept: dict[int, int] = {}
    for config in ordered:
        if not any(masks[config] | other == other for other in kept.values()):
            kept[config] = masks[config]
    return kept


def _greedy(masks: dict[int, int], everything: int) -> list[int]:
    """Returns configs of which each serves most of the shapes that are left."""
    chosen: list[int] = []
    left = everything
    while left:
        config = max(masks, key=lambda one: ((masks[one] & left).bit_count(), -one))
        chosen.append(config)
        left &= ~masks[config]
    return chosen


class _Search:
    """Looks for a smaller set: by the shape that fewest configs serve, one of which has to be in it."""

    def __init__(self, masks: dict[int, int], shapes: int, best: list[int]) -> None:
        self._masks = masks
        self._by_shape = [[c for c, mask in masks.items() if mask >> i & 1] for i in range(shapes)]
        self._most = max(mask.bit_count() for mask in masks.values())
        self._best = best
        self._steps, self._enough = 0, min(MAX_STEPS, MAX_WORK // shapes)

    def run(self) -> tuple[list[int], bool]:
        """Returns the smallest set that was found, and whether it is known to be the smallest."""
        if len(self._best) > MAX_CONFIGS:
            return self._best, False
        self._extend([], (1 << len(self._by_shape)) - 1)
        return self._best, self._steps <= self._enough

    def _extend(self, chosen: list[int], left: int) -> None:
        self._steps += 1
        if not left:
            self._best = list(chosen)
            return
        needed = -(-left.bit_count() // self._most)
        if len(chosen) + needed >= len(self._best) or self._steps > self._enough:
            return
        shape = min((i for i in range(len(self._by_shape)) if left >> i & 1), key=lambda i: len(self._by_shape[i]))
        for config in sorted(self._by_shape[shape], key=lambda c: -(self._masks[c] & left).bit_count()):
            self._extend([*chosen, config], left & ~self._masks[config])
