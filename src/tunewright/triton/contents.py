"""Contents of copied arguments, which change from draw to draw, so that no launch can reuse earlier results."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

from tunewright.triton.tensors import has_own_elements, indices, is_float, is_sorted, plain

CHANGED_ELEMENTS = 32
"""How many elements of each tensor a draw changes."""

MAX_KINDS = 4
"""Draws in a row on which results are checked."""

Change = tuple[str, tuple[Any, ...], Any, Any]
"""A tensor's name, indices of elements, and their values before and after."""


class _Changeable(NamedTuple):
    """A tensor whose elements may be replaced by others of its own, by their neighbors if its rows are sorted."""

    tensor: Any
    sorted_columns: int


class ArgumentContents:
    """Changes a few elements of floating-point tensors. Integers stay, since they may be indices or addresses.

    A new element is another one of the same tensor, so that the range of values stays, and sorted rows stay sorted.
    Draw 0 is the original; a draw has the same contents in every set of arguments. Most draws leave one tensor
    as it is, each in turn, so that no launch can take it for a sign that the others are the same.
    """

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self._tensors = {name: _changeable(plain(tensor)) for name, tensor in tensors.items() if _may_change(tensor)}
        self._changes: list[Change] = []
        self.seed = 0

    @property
    def can_change(self) -> bool:
        """Whether draws differ."""
        return bool(self._tensors)

    def draw(self, number: int) -> None:
        """Changes the tensors from their original contents to those with this number."""
        left = self._left_alone(number)
        for name, own in self._tensors.items() if number else ():
            if name == left:
                continue
            places, sources = _choose(own, Random(f"{self.seed} {number} {name}"))
            where, tensor = indices(own.tensor, places), own.tensor
            # Noted before it is done, so that it can be undone if that is interrupted.
            self._changes.append((name, where, tensor[where], tensor[indices(tensor, sources)]))
            tensor[where] = self._changes[-1][3]

    @property
    def kinds(self) -> int:
        """After how many draws in a row each tensor was left alone once, up to a limit."""
        return min(MAX_KINDS, len(self._tensors) + 1) if len(self._tensors) > 1 else 1

    def _left_alone(self, number: int) -> str | None:
        """Returns the tensor that a draw does not change; None if it changes all."""
        kind = number % (len(self._tensors) + 1)
        return list(self._tensors)[kind] if 1 < len(self._tensors) != kind else None

    def redraw(self, name: str) -> None:
        """Changes a tensor that was restored to its original contents meanwhile."""
        for changed, where, _, after in self._changes:
            if changed == name:
                self._tensors[name].tensor[where] = after

    def undo(self) -> None:
        """Changes the tensors back to their original contents."""
        for name, where, before, _ in reversed(self._changes):
            self._tensors[name].tensor[where] = before
        self._changes = []


def _may_change(tensor: Any) -> bool:
    own = plain(tensor)
    return is_float(own) and own.numel() > 1 and has_own_elements(own)


def _changeable(tensor: Any) -> _Changeable:
    columns = tensor.shape[-1] if tensor.shape[-1] > 1 else tensor.numel()
    return _Changeable(tensor, columns if is_sorted(tensor) else 0)


def _choose(own: _Changeable, random: Random) -> tuple[list[int], list[int]]:
    """Returns places in the flat tensor, each once, and the places of their new values."""
    size, columns = own.tensor.numel(), own.sorted_columns
    if not columns:
        places = random.sample(range(size), min(CHANGED_ELEMENTS, size))
        return places, [random.randrange(size) for _ in places]
    chosen = random.sample(range(size - size // columns), min(CHANGED_ELEMENTS, size - size // columns))
    places = [place // (columns - 1) * columns + place % (columns - 1) + 1 for place in chosen]
    return places, [place - 1 for place in places]
