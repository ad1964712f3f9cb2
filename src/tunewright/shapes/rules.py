"""Readable rules: fits a small decision tree over named sizes that says which config of a cover serves a shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np

from tunewright.errors import SettingsError
from tunewright.report.formatting import counted
from tunewright.shapes.cover import Cover
from tunewright.shapes.table import Floats, Indices, ShapeTable
from tunewright.spaces.shape_rule import Node, RuleLeaf, RuleSplit, ShapeRule, bucket_of

MAX_DEPTH = 4
MAX_LEAVES = 12

MAX_BOUNDS = 48
"""Places where a size is cut; of more, some that divide the shapes evenly."""

MIN_GAIN = 0.002
"""A split that lowers the mean regret by less is not made: it would be luck."""


def verified_buckets(table: ShapeTable, config: int) -> tuple[tuple[int, ...], ...]:
    """Returns the buckets on which a config worked on a shape, and failed on none."""
    return tuple(sorted({bucket_of(table.shapes[i]) for i in np.flatnonzero(table.verified_on_bucket[:, config])}))


@dataclass(frozen=True)
class _Part:
    """Shapes that share a leaf, the config that is best for them together, and what it loses."""

    shapes: Indices
    config: int
    loss: float
    depth: int


@dataclass(frozen=True)
class _Cut:
    """The best way to divide a part, and by how much the loss falls."""

    size: int
    at_most: int
    gain: float


class _Fitter:
    """Grows a tree best-first: each time the split with the largest gain, looking one split ahead."""

    def __init__(self, cover: Cover, max_depth: int) -> None:
        self.known, self.table, self.configs, self.max_depth = cover.known, cover.table, list(cover.configs), max_depth
        weights = self.table.weights / self.table.weights.sum()
        # Where a config was not verified it could not serve, which costs more than the worst that is known.
        regret = np.where(cover.allowed, self.table.regret, np.inf)[:, self.configs]
        known = regret[np.isfinite(regret)]
        self.losses: Floats = weights[:, None] * np.where(np.isfinite(regret), regret, 1 + known.max(initial=0.0))
        self.sizes = self.table.sizes.astype(int)

    def part(self, shapes: Indices, depth: int) -> _Part:
        losses = self.losses[shapes].sum(axis=0)
        best = int(losses.argmin())
        return _Part(shapes, self.configs[best], float(losses[best]), depth)

    def cut(self, part: _Part) -> _Cut | None:
        """Returns the best split of a part; None if none is worth it."""
        if part.depth >= self.max_depth:
            return None
        ahead = part.depth + 1 < self.max_depth
        found = []
        for bounds in self._bounds(part.shapes):
            for bound, loss in zip(bounds.at_most, bounds.losses(self.losses[part.shapes]).tolist(), strict=True):
                low = self.sizes[part.shapes, bounds.size] <= bound
                left = sum(self._least(part.shapes[side], True) for side in (low, ~low)) if ahead else loss
                gain, at_once = round(part.loss - left, 9), round(part.loss - loss, 9)
                found.append((gain, at_once, _Cut(bounds.size, bound, gain)))
        best = max(found, key=lambda one: one[:2], default=None)  # of equals, the one that gains at once
        return best[2] if best and best[0] >= MIN_GAIN else None

    def divide(self, part: _Part, cut: _Cut) -> tuple[_Part, _Part]:
        low = self.sizes[part.shapes, cut.size] <= cut.at_most
        return self.part(part.shapes[low], part.depth + 1), self.part(part.shapes[~low], part.depth + 1)

    def _bounds(self, shapes: Indices) -> list[_Bounds]:
        """Returns where each size can be cut: between neighbors, as far from one as from the other by ratio."""
        return [_Bounds.of(size, self.sizes[shapes, size]) for size in range(self.sizes.shape[1])]

    def _least(self, shapes: Indices, ahead: bool) -> float:
        """Returns the least loss of a part as one leaf, or after one more split."""
        losses = self.losses[shapes]
        whole = float(losses.sum(axis=0).min())
        if not ahead or whole < MIN_GAIN:
            return whole
        return min([whole, *(float(cut.losses(losses).min()) for cut in self._bounds(shapes) if cut.at_most)])


@dataclass(frozen=True)
class _Bounds:
    """Where a size of some shapes can be cut.

    `order` has the shapes by their size, and `counts` how many of them are below each bound.
    """

    size: int
    at_most: list[int]
    counts: Indices
    order: Indices

    @classmethod
    def of(cls, size: int, values: Indices) -> _Bounds:
        """Returns all bounds between values; of very many, some that divide the shapes evenly."""
        order = np.argsort(values, kind="stable")
        counts = np.flatnonzero(np.diff(values[order])) + 1
        if len(counts) > MAX_BOUNDS:
            counts = counts[np.linspace(0, len(counts) - 1, MAX_BOUNDS).round().astype(int)]
        at_most = [isqrt(int(values[order[i - 1]]) * int(values[order[i]])) for i in counts]
        return cls(size, at_most, counts, order)

    def losses(self, losses: Floats) -> Floats:
        """Returns the loss after each cut, if the best config of each side serves it."""
        below = np.cumsum(losses[self.order], axis=0)
        at = below[self.counts - 1]
        return np.asarray(at.min(axis=1) + (below[-1] - at).min(axis=1))


def fit_rule(cover: Cover, kernel: str, *, max_depth: int = MAX_DEPTH, max_leaves: int = MAX_LEAVES) -> ShapeRule:
    """Returns the tree whose configs, all of the cover, lose least on the shapes of the cover."""
    if max_depth < 0 or max_leaves < 1:
        raise SettingsError("a rule has at least one leaf, and a depth of at least 0; give larger bounds")
    fitter = _Fitter(cover, max_depth)
    root = fitter.part(np.arange(len(cover.table.shapes)), 0)
    cuts: dict[int, tuple[_Cut, _Part, _Part]] = {}
    open_parts, leaves = [root], 1
    while leaves < max_leaves:
        cut_parts = [(cut, part) for part in open_parts if (cut := fitter.cut(part))]
        if not cut_parts:
            break
        cut, part = max(cut_parts, key=lambda pair: pair[0].gain)
        low, high = fitter.divide(part, cut)
        cuts[id(part)] = (cut, low, high)
        open_parts = [other for other in open_parts if other is not part] + [low, high]
        leaves += 1
    return ShapeRule(kernel, cover.table.names, _node(fitter, root, cuts))


def _node(fitter: _Fitter, part: _Part, cuts: Mapping[int, tuple[_Cut, _Part, _Part]]) -> Node:
    """Returns a part as a node; a split whose sides agree is one leaf."""
    table = fitter.table
    if id(part) in cuts:
        cut, low, high = cuts[id(part)]
        below, above = _node(fitter, low, cuts), _node(fitter, high, cuts)
        if not (isinstance(below, RuleLeaf) and isinstance(above, RuleLeaf) and below.config == above.config):
            return RuleSplit(table.names[cut.size], cut.at_most, below, above)
    regret = table.regret[part.shapes, part.config]
    mean = float(regret[np.isfinite(regret)].mean())  # no leaf has only shapes that its config may not serve
    config = dict(table.configs[part.config])
    return RuleLeaf(config, verified_buckets(fitter.known, part.config), len(part.shapes), round(mean, 6))


def rule_lines(rule: ShapeRule, names: Sequence[str] = ()) -> list[str]:
    """Returns a rule as indented text; only the knobs in `names`, all if none are given."""

    def lines(node: Node, indent: str) -> Iterator[str]:
        if isinstance(node, RuleLeaf):
            knobs = ", ".join(f"{k}={v}" for k, v in node.config.items() if not names or k in names)
            yield f"{indent}{knobs}  ({counted(node.shapes, 'shape')}, {node.regret:.1%} slower than with the best)"
            return
        yield f"{indent}{node.size} <= {node.at_most}:"
        yield from lines(node.low, indent + "  ")
        yield f"{indent}{node.size} > {node.at_most}:"
        yield from lines(node.high, indent + "  ")

    return list(lines(rule.tree, ""))
