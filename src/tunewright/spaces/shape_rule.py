"""Rules over shapes: a small decision tree over named sizes that says which config serves a shape.

A rule is data. Each leaf knows the power-of-two buckets on which its config was verified, and serves no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from tunewright.spaces.config import Config, Value


class RuleLeaf(msgspec.Struct, frozen=True, dict=True, tag="leaf", tag_field="is"):
    """A config, the buckets on which it was verified, and how it did on the shapes that the rule was fitted on."""

    config: dict[str, Value]
    verified: tuple[tuple[int, ...], ...]
    shapes: int = 0
    regret: float = 0.0

    @cached_property
    def _verified(self) -> frozenset[tuple[int, ...]]:
        return frozenset(self.verified)

    def serves(self, shape: Sequence[int]) -> bool:
        """Whether the config was verified on the bucket of a shape."""
        return bucket_of(shape) in self._verified


class RuleSplit(msgspec.Struct, frozen=True, tag="split", tag_field="is"):
    """Where a size is at most a bound, `low` decides, otherwise `high`."""

    size: str
    at_most: int
    low: RuleSplit | RuleLeaf
    high: RuleSplit | RuleLeaf


Node = RuleSplit | RuleLeaf


class ShapeRule(msgspec.Struct, frozen=True):
    """A decision tree for a kernel over its named sizes."""

    kernel: str
    sizes: tuple[str, ...]
    tree: RuleSplit | RuleLeaf

    def __post_init__(self) -> None:
        """Refuses trees that compare other sizes than those of the rule: it may come from anywhere."""
        pending: list[Node] = [self.tree]
        while pending:
            node = pending.pop()
            if isinstance(node, RuleSplit):
                pending += [node.high, node.low]
                if node.size not in self.sizes:
                    raise ValueError(f"the rule compares {node.size!r}, which is not one of its sizes")
            elif any(len(bucket) != len(self.sizes) for bucket in node.verified):
                raise ValueError(f"a bucket of the rule has not {len(self.sizes)} sizes")

    def leaf(self, sizes: Mapping[str, int]) -> RuleLeaf:
        """Returns the leaf of a shape, whether it may serve it or not."""
        node: Node = self.tree
        while isinstance(node, RuleSplit):
            node = node.low if sizes[node.size] <= node.at_most else node.high
        return node

    def config(self, sizes: Mapping[str, int]) -> Config | None:
        """Returns the config for a shape; None if it was not verified on its bucket, or a size is missing."""
        if not sizes.keys() >= set(self.sizes):
            return None
        leaf = self.leaf(sizes)
        return Config(leaf.config) if leaf.serves([sizes[name] for name in self.sizes]) else None

    def leaves(self) -> Iterator[RuleLeaf]:
        """Yields all leaves, from low to high."""
        pending: list[Node] = [self.tree]
        while pending:
            node = pending.pop()
            if isinstance(node, RuleLeaf):
                yield node
            else:
                pending += [node.high, node.low]

    @property
    def depth(self) -> int:
        """How many comparisons a look-up makes at most."""
        return _depth(self.tree)


def _depth(node: Node) -> int:
    return 0 if isinstance(node, RuleLeaf) else 1 + max(_depth(node.low), _depth(node.high))


def bucket_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the power-of-two bucket of a shape: each size rounded up."""
    return tuple(1 << max(0, (size - 1).bit_length()) for size in shape)
