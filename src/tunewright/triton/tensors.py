"""Memory behind tensors, by methods that torch's tensors have: torch itself is not imported here."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tunewright.triton import adapter

ALIGNMENT = 16
"""Code is compiled for pointers that are multiples of so many bytes, or for others."""

WORD = 8
"""Bytes that are compared at a time, which is much faster than one by one."""


CHUNK = 1 << 18
"""Elements that are looked at or compared at a time, to save memory."""


def plain(tensor: Any) -> Any:
    """Returns the same memory without autograd, which must not record what tuning does."""
    return getattr(tensor, "data", tensor)


def memory_of(tensor: Any) -> Any:
    """Returns all memory that a tensor is a view of, as a tensor of words or bytes; None if that is not known."""
    own = plain(tensor)
    if not adapter.has_known_memory(tensor) or not own.numel():
        return None
    try:
        storage = own.untyped_storage()
    except (NotImplementedError, RuntimeError):  # a tensor that is not strided
        return None
    return _as_words(own, storage, 0, storage.nbytes())


def _as_words(tensor: Any, storage: Any, start: int, size: int) -> Any:
    """Returns so many bytes of the tensor's memory as a tensor of words, or of bytes if they are no whole words."""
    none = tensor.new_empty(0)
    if start % WORD or size % WORD or storage.data_ptr() % WORD:
        return none.byte().set_(storage, start, (size,), (1,))
    return none.long().set_(storage, start // WORD, (size // WORD,), (1,))


def same_bits(first: Any, second: Any) -> bool:
    """Whether two tensors have the same elements bit for bit, if that can be found out fast; else False."""
    if (first.dtype, first.shape, first.device) != (second.dtype, second.shape, second.device):
        return False
    if not (first.is_contiguous() and second.is_contiguous()):
        return bool(first.equal(second))
    words = [
        _as_words(
            own, own.untyped_storage(), own.storage_offset() * own.element_size(), own.numel() * own.element_size()
        )
        for own in (first, second)
    ]
    return bool(words[0].dtype == words[1].dtype and words[0].equal(words[1]))


def view_like(tensor: Any, memory: Any) -> Any:
    """Returns the tensor's view, but of other memory."""
    own = plain(tensor)
    return own.new_empty(0).set_(memory.untyped_storage(), own.storage_offset(), own.size(), own.stride())


def is_float(tensor: Any) -> bool:
    """Whether a tensor holds floating-point numbers."""
    return bool(getattr(tensor.dtype, "is_floating_point", False))


def is_copyable(memory: Any) -> bool:
    """Whether code for this memory also takes a copy of it: a copy is always aligned."""
    return bool(memory.data_ptr() % ALIGNMENT == 0)


def has_own_elements(tensor: Any) -> bool:
    """Whether no two elements of a tensor are the same memory."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride < reach:
            return False
        reach = max(reach, stride * size)
    return True


def is_sorted(tensor: Any) -> bool:
    """Whether the rows of a tensor are sorted; a search in it must find them so."""
    if tensor.shape[-1] < 2:
        tensor = tensor.reshape(1, -1)
    left, right = tensor[..., :-1].float(), tensor[..., 1:].float()
    return bool((left <= right).all()) or bool((left >= right).all())


def indices(tensor: Any, places: Sequence[int]) -> tuple[Any, ...]:
    """Returns places in the flat tensor as indices by which its elements can be read and written."""
    columns: list[list[int]] = []
    for size in reversed(tensor.shape):
        columns.append([place % size for place in places])
        places = [place // size for place in places]
    int64 = tensor.new_empty(0).long().dtype
    return tuple(tensor.new_tensor(column, dtype=int64) for column in reversed(columns))


class Memories:
    """The distinct memory behind the tensors of a call: `of` has its number for each tensor whose memory is known."""

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self.all: list[Any] = []
        self.of: dict[str, int] = {}
        numbers: dict[tuple[str, int], int] = {}
        for name, tensor in tensors.items():
            if (memory := memory_of(tensor)) is None:
                continue
            place = str(memory.device), memory.data_ptr()
            if place not in numbers:
                numbers[place] = len(self.all)
                self.all.append(memory)
            self.of[name] = numbers[place]

    @property
    def nbytes(self) -> int:
        """The bytes of all of them."""
        return sum(int(memory.nbytes) for memory in self.all)

    @property
    def overlaps(self) -> bool:
        """Whether memory belongs to two of them, as that of other libraries may."""
        spans = sorted((memory.data_ptr(), memory.data_ptr() + int(memory.nbytes)) for memory in self.all)
        return any(end > begin for (_, end), (begin, _) in pairwise(spans))

    def is_shared(self, name: str) -> bool:
        """Whether another tensor is a view of the same memory, or may be, since its memory is not known."""
        number = self.of.get(name)
        return number is None or any(other == number for own, other in self.of.items() if own != name)

    def copies(self, room: Room, without: Collection[int] = ()) -> dict[int, Any]:
        """Returns copies of as much memory as there is room for, the smallest first, by number."""
        copies: dict[int, Any] = {}
        for number, memory in sorted(enumerate(self.all), key=lambda pair: int(pair[1].nbytes)):
            if number in without or not is_copyable(memory):
                continue
            if (copy := room.copy_on_device(memory)) is None:
                break
            copies[number] = copy
        return copies


class Room:
    """The bytes of the device that copies may take; those of a copy are given back when it is gone."""

    def __init__(self, size: int) -> None:
        self.left = size

    def copy_on_device(self, tensor: Any) -> Any:
        """Returns a copy; None if there is no room, or less memory than it seemed."""
        size = int(tensor.numel() * tensor.element_size())
        if size > self.left:
            return None
        try:
            copy = tensor.clone()
        except RuntimeError:  # torch's out-of-memory error
            return None
        self.left -= size
        # Of the memory, not of this tensor, of which there may be views.
        memory = copy.untyped_storage() if hasattr(copy, "untyped_storage") else copy
        weakref.finalize(memory, self._give_back, size).atexit = False
        return copy

    def copy(self, tensor: Any) -> Any:
        """Returns a copy, on the host if there is no room."""
        copy = self.copy_on_device(tensor)
        return copy_to_host(tensor) if copy is None else copy

    def _give_back(self, size: int) -> None:
        self.left += size


def copy_to_host(tensor: Any) -> Any:
    """Returns a copy that takes no memory of the device."""
    return tensor.to("cpu", copy=True)
