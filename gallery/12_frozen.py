"""Frozen: three sizes are tuned, forty are served without measuring."""

import logging

import numpy as np
from easel import DEEP, LEAF, WARM, blank, keep

import tunewright as tw

logging.getLogger("tunewright").setLevel(logging.ERROR)  # else each inexact answer is logged once
workshop = tw.Session(pool="serial")
COLORS = {"exact": DEEP, "nearest shape": LEAF, "default": WARM}


@tw.tune(tw.Space(tw.Knob("step", [64, 512, 4096])), session=workshop)
def total(x: tw.In("N"), *, step):
    return np.array([sum(x[i : i + step].sum() for i in range(0, len(x), step))])


if __name__ == "__main__":
    for size in (256, 4096, 65536):
        total(np.ones(size))
    production = tw.Session(mode="frozen")
    total.using(production)
    figure, axes = blank("What production is served with", high=2.8)
    for size in np.unique([*np.geomspace(64, 1 << 18, 40).astype(int).tolist(), 256, 4096, 65536]):
        decision = total.decide(np.ones(size))
        axes.scatter(size, str(decision.config), color=COLORS[str(decision.tier)], marker="s", s=22)
    for tier, color in COLORS.items():
        axes.scatter([], [], color=color, marker="s", label=tier)
    axes.set(xscale="log", xlabel="N")
    axes.legend(fontsize=8)
    assert production.counts["measurements"] == 0
    print(dict(production.counts))
    keep(figure, __file__)
