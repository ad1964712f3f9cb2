"""Bad configs are results: one crashes, one hangs, one is wrong, one uses too much memory; the search continues."""

import os

import numpy as np
from easel import LEAF, WARM, blank, keep

import tunewright as tw

tw.configure(run_seconds=1, memory_mb=1024)
space = tw.Space(tw.Knob("how", ["plainly", "in blocks", "crash", "hang", "wrong", "greedy"]))


@tw.tune(space, reference=lambda x: 2 * x)
def double(x: tw.In("N"), out: tw.Out("N"), *, how):
    if how == "crash":
        os.abort()
    while how == "hang":
        pass
    if how == "greedy":
        np.ones((1 << 40,), np.uint8)
    if how == "in blocks":
        for i in range(0, len(x), 1024):
            np.multiply(x[i : i + 1024], 2, out=out[i : i + 1024])
    else:
        np.multiply(x, 3 if how == "wrong" else 2, out=out)


if __name__ == "__main__":
    x = np.ones(100_000, np.float32)
    decision = double.decide(x, np.empty_like(x))
    trials = list(double.session.store.trials(decision.key))
    print("decided:", decision.config)
    for trial in trials:
        print(f"  {trial.config}: {f'{1e6 * trial.seconds:.0f} us' if trial.works else trial.outcome.reason[:70]}")
    figure, axes = blank("What each of six configs cost, and what became of it", high=2.8)
    costs = [trial.build_seconds + trial.run_seconds for trial in trials]
    axes.barh([trial.config["how"] for trial in trials], costs, color=[LEAF if t.works else WARM for t in trials])
    for i, (trial, cost) in enumerate(zip(trials, costs, strict=True)):
        axes.text(cost, i, " timed" if trial.works else f" {trial.outcome.kind}", va="center")
    axes.set(xlabel="seconds of the search", xlim=(0, 1.25 * max(costs)))
    keep(figure, __file__)
