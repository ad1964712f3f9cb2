"""Pages: weights that compiled code holds, gathered on huge pages, where the processor looks up fewer addresses."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from mmap import PAGESIZE
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from tunewright.backends.inductor.adapter import hook

_SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
_WANTED, _NOW = 14, 25
"""What the kernel is told: that huge pages are wanted (MADV_HUGEPAGE), and now (MADV_COLLAPSE, since Linux 6.1)."""

_LOADER = "torch._inductor.codecache.PyCodeCache"


@cache
def size() -> int:
    """The bytes of a huge page; 0 where there are none to be had."""
    try:
        if sys.platform != "linux" or "[never]" in (_SETTINGS / "enabled").read_text():
            return 0
        huge = int((_SETTINGS / "hpage_pmd_size").read_text())
    except (OSError, ValueError):
        return 0
    return huge if _gathers(huge) else 0


def _gathers(huge: int) -> bool:
    """Whether the kernel knows how: tried on memory that is thrown away."""
    room = torch.zeros(2 * huge, dtype=torch.uint8)
    return _moved(-(-room.data_ptr() // huge) * huge, huge)


def gather(tensors: Iterable[torch.Tensor]) -> int:
    """Have the memory of tensors lie on huge pages, as far as it can; how many are used. Nothing is moved for Python.

    Neighbours in the same huge page come along. What the kernel refuses, since it has no such page left or the memory
    around is not ours, stays as it is.
    """
    huge = size()
    if not huge:
        return 0
    ranges = [_range(tensor) for tensor in tensors]
    places = {place for start, length in ranges if length > PAGESIZE for place in _places(start, length, huge)}
    return sum(_moved(place * huge, huge) for place in places)


def _places(start: int, length: int, huge: int) -> range:
    """The huge pages that a range touches, by number."""
    return range(start // huge, (start + length - 1) // huge + 1)


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """Where a tensor lies, and how many bytes it has; those that a library has packed do not tell it as others do."""
    if tensor.is_mkldnn:
        library = torch.ops.mkldnn
        return int(library.data_ptr(tensor)), int(library._nbytes(tensor))
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return 0, 0
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def _moved(start: int, length: int) -> bool:
    advise = _advise()
    advise(start, length, _WANTED)
    return bool(advise(start, length, _NOW) == 0)


@cache
def _advise() -> Any:
    advise = ctypes.CDLL(None, use_errno=True).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return advise


@contextmanager
def held() -> Iterator[list[torch.Tensor]]:
    """The constants of all code that is loaded while this is open."""
    loader, found = hook(_LOADER), []  # type: tuple[Any, list[torch.Tensor]]
    load = loader.load_by_key_path

    def noted(*where: Any, **more: Any) -> Any:
        constants = (more.get("attrs") or {}).values()
        found.extend(value for value in constants if isinstance(value, torch.Tensor))
        return load(*where, **more)

    with patch.object(loader, "load_by_key_path", noted):
        yield found
