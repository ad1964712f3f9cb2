"""Global, shared and local memory with exact bounds: an access that is not inside of a buffer is a fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tunewright.emulator import types
from tunewright.emulator.faults import FaultKind
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.group import Group

WINDOW = 40
"""Each buffer has an address range of 2**40 bytes of its own, so that an address far outside hits no other buffer."""

SHARED_START = 1024
"""The first bytes are the system's, as on real devices."""

SHARED_WINDOW, LOCAL_WINDOW = 1 << 60, 1 << 61
"""Where shared and local memory are in the generic address space."""


class ByteArray:
    """Bytes that are read and written as elements of any power of two."""

    def __init__(self, size: int) -> None:
        self.bytes = np.zeros(-(-size // 256) * 256, np.uint8)
        self._views: dict[tuple[int, int], Array] = {}

    def view(self, width: int, count: int) -> Array:
        """Returns the bytes as rows of `count` elements of `width` bytes."""
        key = width, count
        if key not in self._views:
            self._views[key] = self.bytes.view(types.UNSIGNED[width]).reshape(-1, count)
        return self._views[key]

    def load(self, flat: Array, width: int, count: int) -> Array:
        """Returns the elements at byte positions, a row each."""
        return self.view(width, count).take(flat >> (width * count).bit_length() - 1, axis=0)

    def store(self, flat: Array, values: Array) -> None:
        """Stores a row of elements at each byte position."""
        width, count = values.dtype.itemsize, values.shape[1]
        self.view(width, count)[flat >> (width * count).bit_length() - 1] = values


class Memory(ByteArray):
    """A memory with a name, and the check that every access passes."""

    name = ""

    def locate(self, group: Group, address: Array, offset: int, size: int) -> Array:
        """Returns byte positions of the active lanes, or ends the run with a fault."""
        raise NotImplementedError

    def _misaligned(self, group: Group, size: int, address: int) -> None:
        raise group.machine.fault(
            group,
            FaultKind.MISALIGNED,
            f"an access of {size} bytes of {self.name} memory at address {address:#x} is not aligned to {size} bytes",
        )


def _first(values: Array, wrong: Array) -> int:
    return int(values[np.flatnonzero(wrong)[0]])


class GlobalMemory(Memory):
    """All buffers of a launch, one after the other, each with its own address range."""

    name = "global"

    def __init__(self, buffers: Sequence[Array], names: Sequence[str]) -> None:
        self.names = list(names)
        self.sizes = np.array([buffer.size for buffer in buffers] or [0], np.int64)
        padded = -(-self.sizes // 256) * 256 + 256
        self.starts = np.concatenate([[0], np.cumsum(padded)[:-1]]).astype(np.int64)
        super().__init__(int(padded.sum()))
        for start, buffer in zip(self.starts, buffers, strict=False):
            self.bytes[start : start + buffer.size] = buffer

    def address(self, number: int) -> int:
        """Returns the address of a buffer."""
        return (number + 1) << WINDOW

    def contents(self, number: int) -> Array:
        """Returns the bytes of a buffer."""
        return self.bytes[self.starts[number] : self.starts[number] + self.sizes[number]]

    def locate(self, group: Group, address: Array, offset: int, size: int) -> Array:
        lanes = group.lanes()
        address = group.full(address)
        address = (address if lanes is None else address[lanes]).astype(np.int64)
        if offset:
            address = address + offset
        number = (address >> WINDOW) - 1
        within = address & ((1 << WINDOW) - 1)
        known = (number >= 0) & (number < len(self.sizes))
        if not known.all():
            value = _first(address, ~known)
            raise group.machine.fault(
                group, FaultKind.OUT_OF_BOUNDS, f"address {value & (2**64 - 1):#x} is in no buffer"
            )
        wrong = within + size > self.sizes[number]
        if wrong.any():
            raise group.machine.fault(group, FaultKind.OUT_OF_BOUNDS, self._describe(number, within, size, wrong))
        if size > 1 and (within & (size - 1)).any():
            self._misaligned(group, size, _first(address, (within & (size - 1)) != 0))
        return np.asarray(self.starts[number] + within)

    def _describe(self, number: Array, within: Array, size: int, wrong: Array) -> str:
        which, position = _first(number, wrong), _first(within, wrong)
        limit = int(self.sizes[which])
        if position > 1 << (WINDOW - 1) and which + 1 < len(self.names):  # below the next buffer
            which, position, limit = which + 1, position - (1 << WINDOW), int(self.sizes[which + 1])
        return (
            f"bytes {position} to {position + size} of {self.names[which]}, which has {limit}; "
            f"{int(wrong.sum())} of {wrong.size} active threads"
        )


class SharedMemory(Memory):
    """The shared memory of the blocks of a batch, a row each."""

    name = "shared"

    def __init__(self, size: int, blocks: int) -> None:
        self.size = size
        self.stride = max(-(-size // 1024) * 1024, 1024)
        super().__init__(self.stride * blocks)
        self.bytes.fill(0xFF)

    def lane_base(self, block: Array) -> Array:
        """Returns what to add to an address of each lane to get a byte position."""
        return np.asarray(block * self.stride - SHARED_START, np.int64)

    def locate(self, group: Group, address: Array, offset: int, size: int) -> Array:
        lanes = group.lanes()
        base = group.shared_base if lanes is None else group.shared_base[lanes]
        if lanes is not None and address.shape[0] > 1:
            address = address[lanes]
        if address.dtype == np.uint64:
            address = address & np.uint64(SHARED_WINDOW - 1)
        within = address.astype(np.int64) + (offset - SHARED_START)
        if not within.size:
            return within
        if within.min() < 0 or within.max() + size > self.size:
            wrong = (within < 0) | (within + size > self.size)
            raise group.machine.fault(
                group,
                FaultKind.OUT_OF_BOUNDS,
                f"bytes {_first(within, wrong)} to {_first(within, wrong) + size} of shared memory, "
                f"which has {self.size}",
            )
        if size > 1 and int(np.bitwise_or.reduce(within)) & (size - 1):
            self._misaligned(group, size, _first(within, (within & (size - 1)) != 0))
        return np.asarray(within + (base + SHARED_START))


class LocalMemory(Memory):
    """Memory of each thread's own; threads of all groups follow each other."""

    name = "local"

    def __init__(self, size: int, lanes: int, slots: int) -> None:
        self.size = -(-size // 16) * 16
        self._lanes = lanes
        super().__init__(self.size * lanes * slots)
        self.bytes.fill(0xFF)

    def locate(self, group: Group, address: Array, offset: int, size: int) -> Array:
        if address.dtype == np.uint64:
            address = address & np.uint64(LOCAL_WINDOW - 1)
        within = group.full(address).astype(np.int64) + offset
        thread: Any = np.arange(group.size) + group.slot * self._lanes
        lanes = group.lanes()
        if lanes is not None:
            within, thread = within[lanes], thread[lanes]
        wrong = (within < 0) | (within + size > self.size)
        if wrong.any():
            raise group.machine.fault(
                group, FaultKind.OUT_OF_BOUNDS, f"byte {_first(within, wrong)} of {self.size} bytes of local memory"
            )
        if (within & (size - 1)).any():
            self._misaligned(group, size, _first(within, (within & (size - 1)) != 0))
        return np.asarray(thread * self.size + within)
