"""Fewer threads for one graph than its process has: a small graph can lose more by waiting than it gains."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

ALL = 0
"""Stands for as many threads as the process has."""

_LIBRARIES = ("libtorch_cpu.so", "libtorch_cpu.dylib")


def choices(count: int) -> list[int]:
    """Returns the numbers of threads that a graph may have in a process with `count`: all of them, half, one."""
    return list(dict.fromkeys([ALL, *(fewer for fewer in (count // 2, 1) if 0 < fewer < count)]))


@contextmanager
def limited(count: int) -> Iterator[None]:
    """Lets this thread compute with at most `count` threads while the context is open; `ALL` changes nothing."""
    before = torch.get_num_threads()
    if count == ALL or before <= count:
        yield
        return
    setter = thread_setter()
    restored = setter(count, count)
    try:
        yield
    finally:
        setter(before, restored)


class LimitedCall:
    """A compiled graph that is called with at most `count` threads; its caller has its own number again after it."""

    def __init__(self, call: Callable[..., Any], count: int) -> None:
        self.call, self.count = call, count
        self._set = thread_setter()

    def __call__(self, *arguments: Any) -> Any:
        """Returns the results of the graph."""
        before = torch.get_num_threads()  # in a thread's first use of torch, it has none of its own before this
        if before <= self.count:
            return self.call(*arguments)
        restored = self._set(self.count, self.count)  # not by `limited`: a context costs more than both of these calls
        try:
            return self.call(*arguments)
        finally:
            self._set(before, restored)


@cache
def thread_setter() -> Callable[[int, int], int]:
    """Returns a function that gives the calling thread these numbers of threads, of OpenMP and of MKL, and returns the
    number of MKL before.

    PyTorch's own function also stores the number for threads that use PyTorch later, which would keep it; it is used
    only where the functions under it are not found.
    """
    folder = Path(torch.__file__).parent / "lib"
    for name in (None, *(str(folder / name) for name in _LIBRARIES if (folder / name).exists())):
        try:
            library = ctypes.PyDLL(name)
            setter = _local_setter(library.omp_set_num_threads, _mkl_setter(library))
        except (AttributeError, OSError, TypeError):
            continue
        if _is_honoured(setter):
            return setter
    return _set_for_all


def _local_setter(set_openmp: Callable[[int], Any], set_mkl: Callable[[int], int] | None) -> Callable[[int, int], int]:
    def set_both(openmp: int, mkl: int) -> int:
        set_openmp(openmp)
        return set_mkl(mkl) if set_mkl else 0

    return set_both


def _mkl_setter(library: Any) -> Callable[[int], int] | None:
    """Returns MKL's function for the calling thread, 0 for the number of the process; None if PyTorch has no MKL."""
    if not torch.backends.mkl.is_available():
        return None
    setter: Callable[[int], int] = library.MKL_Set_Num_Threads_Local
    return setter


def _is_honoured(setter: Callable[[int, int], int]) -> bool:
    """Whether PyTorch has the number that is set: there may be several OpenMP libraries in a process."""
    before = torch.get_num_threads()
    restored = setter(before + 1, before + 1)
    try:
        return bool(torch.get_num_threads() == before + 1)
    finally:
        setter(before, restored)


def _set_for_all(openmp: int, mkl: int) -> int:
    """Sets the number by PyTorch's own function, which sets that of MKL, too."""
    torch.set_num_threads(openmp)
    return openmp
