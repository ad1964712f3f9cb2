"""Buckets: sizes rounded up, so that few sizes have to be tuned."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from tunewright.errors import SignatureError


class Buckets:
    """Rounds named dimensions up to the next of their edges."""

    def __init__(self, edges: Mapping[str, Sequence[int] | str]) -> None:
        self._edges = {name: None if spec == "pow2" else self._sorted(name, spec) for name, spec in edges.items()}

    @staticmethod
    def _sorted(name: str, spec: Sequence[int] | str) -> tuple[int, ...]:
        if isinstance(spec, str) or not spec or not all(isinstance(edge, int) and edge > 0 for edge in spec):
            raise SignatureError(f'buckets of {name!r} are "pow2" or a list of positive sizes, not {spec!r}')
        return tuple(sorted(spec))

    def __iter__(self) -> Iterator[str]:
        return iter(self._edges)

    def tops(self, name: str) -> tuple[int, ...]:
        """Returns the edges of a dimension; none if it is not rounded, or to any power of two."""
        return self._edges.get(name) or ()

    def __call__(self, name: str, size: int) -> int:
        """Returns the bucket of `size`: the smallest edge not below it; sizes beyond the last edge share it."""
        if name not in self._edges:
            return size
        edges = self._edges[name]
        if edges is None:
            return 1 << max(0, (size - 1).bit_length())
        return edges[min(bisect_left(edges, size), len(edges) - 1)]
