"""A script that tunes at top level, as a newcomer writes it: its workers must not run it to the end."""

import sys

import numpy as np

import tunewright as tw


@tw.tune(tw.Space(tw.Knob("step", [1, 2, 4])), reference=lambda x: x.sum())
def total(x: tw.In("N"), *, step: int):
    return sum(x[i::step].sum() for i in range(step))


result = total(np.ones(1000))
sys.stdout.write(f"{result} {tw.current_session().counts['measurements']}\n")
