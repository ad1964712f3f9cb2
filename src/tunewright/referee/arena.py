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
        self.slot_bytes = -(-(slot_bytes + GUARD) // mmap.PAGESIZE) * mmap.PAGESIZE
        self.nbytes = SLOTS * self.slot_bytes
        self.descriptor = os.memfd_create(name)
        os.ftruncate(self.descriptor, self.nbytes)
        self._map = mmap.mmap(self.descriptor, self.nbytes)
        self.memory: NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)

    def read_only_descriptor(self) -> int:
        """Opens the memory again, for reading only: whoever maps that cannot make it writable."""
        return os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDONLY | os.O_CLOEXEC)

    def places(self, slot: int, shift: int, specs: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[ArrayPlace]:
        """Returns places for arrays of these shapes and dtypes; `shift` moves them by so many aligned blocks."""
        offset, places = slot * self.slot_bytes + GUARD + (shift % (GUARD // ALIGNMENT)) * ALIGNMENT, []
        for shape, dtype in specs:
            places.append(ArrayPlace(offset, shape, dtype.name))
            offset += _rounded(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize) + GUARD
        return places

    def slot_view(self, slot: int) -> NDArray[np.uint8]:
        """Returns the bytes of a slot."""
        return self.memory[slot * self.slot_bytes : (slot + 1) * self.slot_bytes]

    def view(self, place: ArrayPlace, dtype: np.dtype[Any], image: NDArray[np.uint8]) -> NDArray[Any]:
        """Returns the array at a place in a copy of its slot."""
        start = place.offset % self.slot_bytes
        count = int(np.prod(place.shape, dtype=np.int64))
        return image[start : start + count * dtype.itemsize].view(dtype).reshape(place.shape)

    def close(self) -> None:
        """Gives the memory back."""
        os.close(self.descriptor)


class ResultArena(Arena):
    """Memory for results: random bytes wherever nothing was written since it was poisoned."""

    def __init__(self, slot_bytes: int, rng: np.random.Generator) -> None:
        super().__init__(slot_bytes, name="results")
        self.poison: NDArray[np.uint8] = rng.integers(0, 256, self.slot_bytes, dtype=np.uint8)
        self.restore()

    def restore(self) -> None:
        """Poisons all slots again."""
        for slot in range(SLOTS):
            self.slot_view(slot)[:] = self.poison

    def is_clean(self) -> bool:
        """Whether nothing was written to any slot since it was poisoned."""
        return all(np.array_equal(self.slot_view(slot), self.poison) for slot in range(SLOTS))

    def is_clean_around(self, image: NDArray[np.uint8], places: Sequence[ArrayPlace], sizes: Sequence[int]) -> bool:
        """Whether nothing was written to the slot of which this is a copy but the results at these places."""
        end = 0
        for place, size in sorted(zip(places, sizes, strict=True), key=lambda each: each[0].offset):
            start = place.offset % self.slot_bytes
            if not np.array_equal(image[end:start], self.poison[end:start]):
                return False
            end = start + size
        return np.array_equal(image[end:], self.poison[end:])
