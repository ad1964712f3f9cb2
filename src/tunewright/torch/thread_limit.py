"""Fewer threads for one graph than its process has: a small graph can lose more by waiting than it gains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

ALL = 0
"""Stands for as many threads as the process has."""


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
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class LimitedCall:
    """A compiled graph that is called with at most `count` threads; its caller has its own number again after it."""

    def __init__(self, call: Callable[..., Any], count: int) -> None:
        self.call, self.count = call, count

    def __call__(self, *arguments: Any) -> Any:
        """Returns the results of the graph."""
        before = torch.get_num_threads()
        if before <= self.count:
            return self.call(*arguments)
        torch.set_num_threads(self.count)  # not by `limited`: a context costs more than both of these calls
        try:
            return self.call(*arguments)
        finally:
            torch.set_num_threads(before)
