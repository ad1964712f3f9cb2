"""Uptime: time since this machine booted, which goes on while it sleeps, and which nobody can set."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path


@cache
def boot() -> str:
    """Which boot this is: another one counts from another moment."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return "unknown"


def uptime() -> float:
    """Seconds since then."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
