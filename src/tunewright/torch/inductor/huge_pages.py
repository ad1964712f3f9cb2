"""Huge pages for the weights of compiled code, so that the processor looks up fewer addresses."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from functools import cache
from mmap import PAGESIZE
from pathlib import Path
from typing import Any

import torch

_SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
_MADV_HUGEPAGE, _MADV_COLLAPSE = 14, 25
"""Advice to the kernel: huge pages are wanted, and now (since Linux 6.1)."""


@cache
def page_size() -> int:
    """Returns the bytes of a huge page; 0 where there are none."""
    try:
        if sys.platform != "linux" or "[never]" in (_SETTINGS / "enabled").read_text():
            return 0
        huge = int((_SETTINGS / "hpage_pmd_size").read_text())
    except (OSError, ValueError):
        return 0
    return huge if _can_collapse(huge) else 0


def _can_collapse(huge: int) -> bool:
    """Whether the kernel can collapse memory into huge pages; tried on memory that is thrown away."""
    memory = torch.zeros(2 * huge, dtype=torch.uint8)
    return _collapse(-(-memory.data_ptr() // huge) * huge, huge)


def move_to_huge_pages(tensors: Iterable[torch.Tensor]) -> int:
    """Moves the memory of tensors to huge pages, as far as possible; returns how many are used.

    Addresses stay the same. Neighbors in the same huge page come along. Memory stays as it is where the kernel has no
    huge page left, or where the memory around it is not ours.
    """
    huge = page_size()
    if not huge:
        return 0
    ranges = [_memory_range(tensor) for tensor in tensors]
    pages = {page for start, length in ranges if length > PAGESIZE for page in _page_numbers(start, length, huge)}
    return sum(_collapse(page * huge, huge) for page in pages)


def _page_numbers(start: int, length: int, huge: int) -> range:
    """Returns the numbers of the huge pages that a range touches."""
    return range(start // huge, (start + length - 1) // huge + 1)


def _memory_range(tensor: torch.Tensor) -> tuple[int, int]:
    """Returns the address of a tensor and its bytes; those packed by oneDNN have accessors of their own."""
    if tensor.is_mkldnn:
        library = torch.ops.mkldnn
        return int(library.data_ptr(tensor)), int(library._nbytes(tensor))
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return 0, 0
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def _collapse(start: int, length: int) -> bool:
    madvise = _madvise()
    madvise(start, length, _MADV_HUGEPAGE)
    return bool(madvise(start, length, _MADV_COLLAPSE) == 0)


@cache
def _madvise() -> Any:
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return madvise
