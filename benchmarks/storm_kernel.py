"""The kernel of `fleet_storm.py`: it notes when it ran on which machine, and some of its configs misbehave."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tunewright import In, Knob, Space, tune

CRASHES, HANGS = 41, 53


@tune(Space(Knob("step", range(60))), default={"step": 0})
def stormy(x: In("N"), *, step: int):  # type: ignore[valid-type]
    began = time.monotonic()
    if step == CRASHES:
        os.abort()
    if step == HANGS:
        time.sleep(30)
    time.sleep(0.004 + 0.0001 * step)
    line = f"{began!r} {time.monotonic()!r} {os.getpid()}\n"
    with (Path.home() / "timings.log").open("a") as log:
        log.write(line)
    return 1
