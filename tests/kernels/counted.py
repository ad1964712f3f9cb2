"""A kernel whose workers leave a mark for every attempt; as a script, `counted.py ACKNOWLEDGED`, it tunes."""

import os
import sys
import time
from pathlib import Path

import numpy as np

import tunewright as tw
from tunewright.measure.evaluator import Evaluator
from tunewright.model.event import TrialFinished
from tunewright.stores import singleflight

MARKS = Path(os.environ.get("COUNTED_MARKS", os.devnull))


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text + "\n")


@tw.tune(tw.Space(tw.Knob("step", range(40))), reference=lambda x: x * 2, default={"step": 0})
def double(x: tw.In("N"), *, step: int):
    return x * 2


class Marked(Evaluator):
    """An evaluator that leaves a mark for each attempt, and takes a little longer, so that kills find it at work."""

    def __call__(self, entry, *args):
        append(MARKS, f"{entry.config['step']}")
        time.sleep(0.01)
        return super().__call__(entry, *args)


def make_evaluator(inputs, cache):
    plain = type(double).make_evaluator(double, inputs, cache)
    return Marked(plain.workload, target=plain.target)


double.make_evaluator = make_evaluator


def acknowledge(event) -> None:
    if isinstance(event, TrialFinished) and not event.replayed:
        append(Path(sys.argv[1]), f"{event.trial.config['step']}")


if __name__ == "__main__":
    singleflight.LEASE = 1.0  # whoever follows one that was killed need not wait long
    double.using(tw.Session(listeners=[acknowledge], strategy="exhaustive"))
    double(np.ones(8))
    sys.stdout.write(f"done {double.session.counts['measurements']}\n")
