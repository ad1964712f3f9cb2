"""A kernel in C: two knobs, every config is tried, and the best is raced against the default."""

import numpy as np
from easel import place

import tunewright as tw
from tunewright.report import plots

space = tw.Space(tw.Knob("UNROLL", [1, 4, 16]), tw.Knob("opt", ["-O1", "-O2", "-O3"]))


@tw.tune(space, backend=tw.C("saxpy.c", flags="-march=native"), reference=lambda x, y: y + 2 * x)
def saxpy(x: tw.In("N"), y: tw.InOut("N")): ...


if __name__ == "__main__":
    x, y = np.ones(65536, np.float32), np.zeros(65536, np.float32)
    saxpy(x, y)
    decision = saxpy.decide(x, y)
    print(decision.config, f"{decision.evidence.gain:.2f} times as fast as the default")
    trials = list(saxpy.session.store.trials(decision.key))
    plots.draw(place(__file__), decision.key, trials, decision)
