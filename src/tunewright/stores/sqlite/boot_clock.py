"""The time since this machine booted, which continues while it sleeps and which nobody can set."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path


@cache
def boot_id() -> str:
    """Returns an id of this boot: uptimes of different boots cannot be compared."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return "unknown"


def uptime() -> float:
    """Returns the seconds since boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
