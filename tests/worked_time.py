"""Time that moves by what kernels say they do, and by nothing else: races in this process without a real clock."""

import time
from types import SimpleNamespace

from tunewright.kernel import program
from tunewright.measure import clock, evaluator, race

SPENT = [0.0]
LAUNCH = 1e-5
"""Seconds that every launch takes beside its work."""


def work(units):
    """Takes so many microseconds."""
    SPENT[0] += float(units) * 1e-6


def now():
    return SPENT[0]


def pause(seconds):
    SPENT[0] += float(seconds)


def timed(timer, count):
    """What a HostTimer reads."""
    began = now()
    for _ in range(count):
        timer._call()
        pause(LAUNCH)
    return now() - began


def install(monkeypatch):
    """Let all that times kernels in this process read this clock."""
    shown = SimpleNamespace(monotonic=now, perf_counter=now, time=time.time, sleep=pause)
    monkeypatch.setattr(clock.HostTimer, "__call__", timed)
    for module in (clock, program):
        monkeypatch.setattr(module, "perf_counter", now)
    for module in (race, evaluator):
        monkeypatch.setattr(module, "time", shown)
