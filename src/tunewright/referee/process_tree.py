"""The processes of a contestant, seen from outside: who descends from it, and the CPU time of all."""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict

_SCHEDULED = 2
"""The kind of CPU clock that counts what the scheduler gave to all threads of a process."""


def cpu_nanoseconds(pid: int) -> int:
    """Returns the CPU time of all threads of a process, the ended ones included; 0 if there is no such process."""
    try:
        return time.clock_gettime_ns((~pid << 3) | _SCHEDULED)
    except OSError:
        return 0


def descendants(pid: int) -> list[int]:
    """Returns the processes that descend from one, in any order; orphans in its namespace are its children."""
    children: dict[int, list[int]] = defaultdict(list)
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                children[_parent(int(name))].append(int(name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        own = children.pop(waiting.pop(), [])
        found += own
        waiting += own
    return found


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def reaped_nanoseconds(pid: int) -> int:
    """Returns the CPU time of ended children that a process waited for; the system counts it in ticks."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return (int(fields[13]) + int(fields[14])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
