"""Shared memory of a contestant: inputs that it can only read, and results that are poisoned before each launch."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.referee.messages import ArrayPlace

ALIGNMENT = 64
GUARD = 4096
"""Bytes before, between and after arrays, which nobody may change."""

SLOTS = 3
"""Places at which the arrays of a launch may lie: new contents come to old addresses, and old ones to new addresses."""


def spaced_bytes(sizes: Sequence[int]) -> int:
    """Returns the bytes that arrays of these sizes take with their guards."""
    return GUARD + sum(_rounded(size) + GUARD for size in sizes)


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class Arena:
    """Memory with a few slots, each for the arrays of one launch."""

    def __init__(self, slot_bytes: int, *, name: str) -> None:
        self._slot = -(-(slot_bytes + GUARD) // mmap.PAGESIZE) * mmap.PAGESIZE
        self.nbytes = SLOTS * self._slot
        self.descriptor = os.memfd_create(name)
        os.ftruncate(self.descriptor, self.nbytes)
        self._map = mmap.mmap(self.descriptor, self.nbytes)
        self.memory: NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)

    def read_only_descriptor(self) -> int:
        """Opens the memory again, for reading only: whoever maps that cannot make it writable."""
        return os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDONLY | os.O_CLOEXEC)

    def places(self, slot: int, shift: int, specs: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[ArrayPlace]:
        """Returns places for arrays of these shapes and dtypes; `shift` moves them by so many aligned blocks."""
        offset, places = slot * self._slot + GUARD + (shift % (GUARD // ALIGNMENT)) * ALIGNMENT, []
        for shape, dtype in specs:
            places.append(ArrayPlace(offset, shape, dtype.name))
            offset += _rounded(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize) + GUARD
        return places

    def slot_view(self, slot: int) -> NDArray[np.uint8]:
        """Returns the bytes of a slot."""
        return self.memory[slot * self._slot : (slot + 1) * self._slot]

    def view(self, place: ArrayPlace, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Returns the array at a place."""
        count = int(np.prod(place.shape, dtype=np.int64))
        return self.memory[place.offset : place.offset + count * dtype.itemsize].view(dtype).reshape(place.shape)

    def close(self) -> None:
        """Gives the memory back."""
        os.close(self.descriptor)


class ResultArena(Arena):
    """Memory for results: random bytes wherever nothing was written since it was poisoned."""

    def __init__(self, slot_bytes: int, rng: np.random.Generator) -> None:
        super().__init__(slot_bytes, name="results")
        self._poison = rng.integers(0, 256, self._slot, dtype=np.uint8)
        for slot in range(SLOTS):
            self.slot_view(slot)[:] = self._poison

    def poison(self) -> None:
        """Fills all slots again, so that no result of an earlier launch is left."""
        for slot in range(SLOTS):
            view = self.slot_view(slot)
            if not np.array_equal(view, self._poison):
                view[:] = self._poison

    def is_clean_outside(self, slot: int, places: Sequence[ArrayPlace], sizes: Sequence[int]) -> bool:
        """Whether nothing was written but the results at these places."""
        for number in range(SLOTS):
            expected = self._poison
            if number == slot:
                expected = expected.copy()
                for place, size in zip(places, sizes, strict=True):
                    start = place.offset - slot * self._slot
                    expected[start : start + size] = self.slot_view(slot)[start : start + size]
            if not np.array_equal(self.slot_view(number), expected):
                return False
        return True
