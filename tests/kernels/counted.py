"""A kernel that leaves a mark for every config it is really tried with; run as a script, it tunes itself.

counted.py MARKS ACKNOWLEDGED SECONDS
"""

import os
import sys
import time
from pathlib import Path

import numpy as np

import tunewright as tw
from tunewright.model.event import Tried

MARKS = Path(os.environ.get("COUNTED_MARKS", os.devnull))


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text + "\n")


def mark(x, step):
    append(MARKS, f"{step}")
    return x * 2


SPACE = tw.Space(tw.Knob("step", range(40)))


@tw.tune(SPACE, reference=lambda x: x * 2, default={"step": 0}, shapes=[{"N": 8}])
def double(x: tw.In("N"), *, step: int):
    if not seen.get(step):
        seen[step] = True
        mark(x, step)
        time.sleep(0.005)
    return x * 2


seen: dict[int, bool] = {}


def acknowledge(event) -> None:
    if isinstance(event, Tried) and not event.replayed:
        append(Path(sys.argv[1]), f"{event.trial.config['step']}")


if __name__ == "__main__":
    double.using(tw.Session(listeners=[acknowledge], strategy="exhaustive"))
    double(np.ones(8))
    sys.stdout.write(f"done {double.session.counts['measurements']}\n")
