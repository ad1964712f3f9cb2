"""A kernel that leaves a mark for every config a worker tries; as a script, `counted.py ACKNOWLEDGED`, it tunes."""

import os
import sys
import time
from pathlib import Path

import numpy as np

import tunewright as tw
from tunewright.model.event import Tried

MARKS = Path(os.environ.get("COUNTED_MARKS", os.devnull))
seen: set[int] = set()


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text + "\n")


@tw.tune(tw.Space(tw.Knob("step", range(40))), reference=lambda x: x * 2, default={"step": 0})
def double(x: tw.In("N"), *, step: int):
    if step not in seen and __name__ != "__main__":
        seen.add(step)
        append(MARKS, f"{step}")
        time.sleep(0.005)
    return x * 2


def acknowledge(event) -> None:
    if isinstance(event, Tried) and not event.replayed:
        append(Path(sys.argv[1]), f"{event.trial.config['step']}")


if __name__ == "__main__":
    double.using(tw.Session(listeners=[acknowledge], strategy="exhaustive"))
    double(np.ones(8))
    sys.stdout.write(f"done {double.session.counts['measurements']}\n")
