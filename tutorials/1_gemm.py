"""Tutorial 1: tune a matrix product in C until it keeps up with numpy.

`gemm.c` leaves its parameters open: how wide a vector is, how much of C is held in registers, how A and B are cut to
fit the caches. No setting is best on every machine, and the best one is hard to guess. There are only a few thousand,
so we declare them and let Tunewright try them.

Run this file twice. The first run searches for half a minute; the second finds the answer in the store.
"""

import os

# One thread on both sides: numpy reads these when it is imported.
os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import time
from statistics import median, quantiles

import numpy as np

import tunewright as tw

SIZE = 512
ROUNDS = 100

# The knobs. In C each knob is a macro; values that begin with a dash are compiler flags instead.
# A rule excludes combinations that make no sense, and says why.
space = tw.Space(
    tw.Knob("VW", [4, 8, 16]),
    tw.Knob("MR", [1, 2, 4, 6, 8, 12, 14]),
    tw.Knob("NR", [1, 2, 3, 4]),
    tw.Knob("KB", [64, 128, 256, 512]),
    tw.Knob("NB", [128, 512]),
    tw.Knob("UNROLL", [1, 4]),
    tw.Knob("PACK_A", [False, True]),
    tw.Knob("ROWS_OUTER", [False, True]),
    tw.Knob("opt", ["-O2", "-O3"]),
    rules=[
        tw.Rule("32 registers hold the sums, a row of B and an element of A", lambda MR, NR: MR * NR + NR + 1 <= 32),
        tw.Rule("a piece of B fits the second-level cache twice", lambda KB, NB: 4 * KB * NB <= 512 * 1024),
    ],
)


# The kernel: its arguments, whether it reads or writes them, and the names of their sizes, which become macros as well.
# The result of every config must match the reference before it is timed. The default is what one might write by hand.
@tw.tune(
    space,
    backend=tw.C("gemm.c", flags="-march=native"),
    reference=np.matmul,
    default=dict(VW=8, MR=4, NR=1, KB=128, NB=128, UNROLL=1, PACK_A=False, ROWS_OUTER=False, opt="-O2"),
    budget="200",
)
def gemm(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...


def cpu_seconds(call, *args):
    start = time.process_time()
    call(*args)
    return time.process_time() - start


def main():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, SIZE, SIZE), dtype=np.float32)
    c = np.empty_like(a)

    # The first call searches, unless the store has a decision. Later calls run the chosen config.
    gemm(a, b, c)
    assert np.allclose(c, a @ b, atol=1e-3)

    decision = gemm.decide(a, b, c)
    print(f"{len(space):,} configs; the best of {decision.evidence.trials} tried: {decision.config}")
    print(f"{decision.evidence.gain:.1f} times as fast as the default")

    # A fair race: in turns, so that conditions are equal, and by CPU time, so that other programs do not count.
    ours, numpys = [], []
    for _ in range(ROUNDS):
        ours.append(cpu_seconds(gemm, a, b, c))
        numpys.append(cpu_seconds(np.matmul, a, b, c))
    ratios = [theirs / mine for mine, theirs in zip(ours, numpys, strict=True)]
    low, _, high = quantiles(ratios, n=4)
    print(f"half of the {ROUNDS} rounds had a ratio between {low:.2f} and {high:.2f}")

    tuned, numpy = (2e-9 * SIZE**3 / median(times) for times in (ours, numpys))
    print(
        f"gemm {SIZE}x{SIZE}x{SIZE}: tuned {tuned:.1f} GFLOP/s, numpy {numpy:.1f} GFLOP/s, "
        f"ratio {tuned / numpy:.2f}, measurements {gemm.session.counts['measurements']}"
    )


if __name__ == "__main__":
    main()
