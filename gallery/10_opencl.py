"""An OpenCL kernel: a transposition with tuned work-groups and tiles, on any available device."""

import numpy as np
from easel import place

import tunewright as tw
from tunewright.operators import opencl_kernels as kernels
from tunewright.report import plots

START = [{**kernels.TRANSPOSE_START, "TX": tx, "TY": ty} for tx in (1, 4, 16) for ty in (1, 4, 16)]


@tw.tune(
    kernels.TRANSPOSE,
    backend=kernels.transpose_source(),
    reference=lambda x: x.T,
    default=kernels.TRANSPOSE_DEFAULT,
    seeds=START,
    budget="10",
)
def transpose(x: tw.In("M", "N"), y: tw.Out("N", "M")): ...


if __name__ == "__main__":
    x = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    y = np.empty_like(x)
    transpose(x, y)
    assert np.array_equal(y, x.T)
    decision = transpose.decide(x, y)
    print(decision.config, f"{decision.evidence.gain:.2f} times as fast as the default, on {decision.key.device}")
    trials = list(transpose.session.store.trials(decision.key))
    plots.draw(place(__file__), decision.key, trials, decision, axes=("TX", "TY"))
