"""Buckets: a hundred lengths, a handful of tunings."""

import numpy as np
from easel import DEEP, LEAF, blank, keep

import tunewright as tw

session = tw.Session(pool="serial")


@tw.tune(tw.Space(tw.Knob("step", [64, 512, 4096])), buckets={"N": "pow2"}, session=session)
def in_steps(x: tw.In("N"), *, step):
    return np.array([sum(x[i : i + step].sum() for i in range(0, len(x), step))])


if __name__ == "__main__":
    lengths = sorted(int(n) for n in np.random.default_rng(1).integers(1, 2049, 100))
    tuned = []
    for length in lengths:
        in_steps(np.ones(length))
        tuned.append(len(list(session.store.decisions("in_steps"))))
    print(len(lengths), "lengths,", tuned[-1], "tunings;", dict(session.counts))
    figure, axes = blank("Lengths seen, and searches made for them")
    axes.plot(lengths, range(1, len(lengths) + 1), color=LEAF, label="calls")
    axes.step(lengths, tuned, where="post", color=DEEP, label="tunings")
    axes.set(xlabel="length", xscale="log")
    axes.legend()
    keep(figure, __file__)
