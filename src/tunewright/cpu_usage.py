"""What a thread used over some time: seconds by each clock, and waits for anything other than a processor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_THREAD, getrusage
from time import perf_counter, process_time, thread_time
from typing import NamedTuple

CLOCK_SLACK = 5e-5
"""Seconds by which clocks may differ by chance."""


class Usage(NamedTuple):
    """Seconds by each clock; seconds of waits for anything other than a processor; how often the thread yielded its.

    `waited` may be too large by what the readings take, and is never too small.
    """

    thread: float = 0.0
    cpu: float = 0.0
    wall: float = 0.0
    waited: float = 0.0
    yields: float = 0.0

    def needs_wall_clock(self, launches: int) -> bool:
        """Whether launches wait for something other than a processor, or use other threads."""
        waits = self.yields >= max(1, launches // 2) and self.waited > 0.1 * self.cpu + CLOCK_SLACK
        return waits or self.cpu > 1.1 * self.thread + CLOCK_SLACK

    def plus(self, other: Usage) -> Usage:
        """Returns the usage of both."""
        return Usage(*(sum(pair) for pair in zip(self, other, strict=True)))


def start_usage() -> Callable[[], Usage]:
    """Returns a function that tells what this thread has used since now."""
    # A thread may lose its processor between two readings. So the time in the queue, which is subtracted, is read
    # within the time from which it is subtracted.
    outer = perf_counter() - process_time()
    queued, yields = _queued_seconds(), getrusage(RUSAGE_THREAD).ru_nvcsw
    cpu, thread, wall = process_time(), thread_time(), perf_counter()

    def usage_since() -> Usage:
        seconds = perf_counter() - wall
        used, used_here = process_time() - cpu, thread_time() - thread
        yielded, delay = getrusage(RUSAGE_THREAD).ru_nvcsw - yields, _queued_seconds() - queued
        waited = perf_counter() - process_time() - outer - delay
        return Usage(used_here, used, seconds, waited, yielded)

    return usage_since


def read_schedstat(task: str) -> tuple[float, float] | None:
    """Returns the CPU seconds of a task, and the seconds it waited for a processor; None if the system tells none."""
    try:
        cpu, delay, *_ = Path(f"/proc/{task}/schedstat").read_text().split()
    except (OSError, ValueError):
        return None
    return int(cpu) * 1e-9, int(delay) * 1e-9


def _queued_seconds() -> float:
    """Returns for how long this thread was ready to run while others ran; 0 if the system does not tell."""
    times = read_schedstat("thread-self")
    return times[1] if times else 0.0
