"""Dispatch: sums of rows by numpy, BLAS or C, whichever won the race for the shape."""

import numpy as np
from easel import blank, keep

from tunewright.operators import dispatch

reduce = dispatch("reduce", only=["numpy", "blas", "c"], threads=1)
SHAPES = [(4, 1 << 16), (512, 512), (1 << 16, 4)]

if __name__ == "__main__":
    figure, axes = blank("Sums of rows: time over the winner's")
    for i, (rows, columns) in enumerate(SHAPES):
        x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
        out = reduce(x)
        assert np.allclose(out, x.sum(1), atol=1e-2)
        decision = reduce.decide(x)
        trials = list(reduce.session.store.trials(decision.key))
        print(f"{rows} x {columns}: {decision.config['variant']}")
        best = min(trial.seconds for trial in trials)
        for trial in sorted(trials, key=lambda trial: str(trial.config["variant"])):
            name = str(trial.config["variant"])
            at = i + 0.27 * (["blas", "c", "numpy"].index(name) - 1)
            axes.bar(at, trial.seconds / best, width=0.24, color=f"C{['blas', 'c', 'numpy'].index(name)}")
            axes.text(at, trial.seconds / best, name, ha="center", va="bottom", fontsize=8)
    axes.set_xticks(range(len(SHAPES)), [f"{m} x {n}" for m, n in SHAPES])
    axes.set(yscale="log", ylabel="times the winner's")
    keep(figure, __file__)
