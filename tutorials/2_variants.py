"""Tutorial 2: let the algorithm be part of the choice.

Three ways to multiply matrices: three plain loops, the blocked kernel of tutorial 1, and the BLAS library that numpy
calls. Which is best depends on the shape: a library has overhead in every call, plain loops have cache misses. So the
algorithm is tuned like any other parameter: as a variant, which may have knobs and rules of its own.

The times shown are those of whole calls from Python, which dominates at the smallest shapes.
Run this file twice: the first run takes half a minute, the second reads the store.
"""

import os

# One thread for BLAS, as for the others: numpy reads these when it is imported.
os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import numpy as np

import tunewright as tw

SHAPES = [(16, 16, 16), (64, 64, 64), (512, 512, 512), (1, 512, 512), (512, 1, 512)]
VARIANTS = ["naive", "blocked", "blas"]

space = tw.Space(
    variants=[
        tw.Variant("naive"),
        tw.Variant(
            "blocked",
            tw.Knob("VW", [4, 8, 16]),
            tw.Knob("MR", [2, 4, 8, 12]),
            tw.Knob("NR", [1, 2, 4]),
            rules=[tw.Rule("32 registers hold the sums and what feeds them", lambda MR, NR: MR * NR + NR + 1 <= 32)],
        ),
        tw.Variant("blas"),
    ]
)


def blas(a, b, c):
    np.matmul(a, b, out=c)


# Each variant has its own backend; a plain function is one too. The other macros of the blocked kernel are fixed by
# flags. Each of the remaining 32 configs can be tried at each shape.
backends = {
    "naive": tw.C("naive.c", "gemm"),
    "blocked": tw.C("gemm.c", "gemm", flags="-O3 -march=native -DKB=256 -DNB=128 -DUNROLL=4 -DPACK_A=0 -DROWS_OUTER=1"),
    "blas": blas,
}


# The store identifies the kernel by its name; tutorial 1 already uses the name of the function.
@tw.tune(space, backend=backends, reference=np.matmul, default={"variant": "naive"}, budget="40", name="gemm-variants")
def gemm(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...


def best_times(decision):
    """Returns the best time of each variant in seconds: the store keeps every trial, not only the winner."""
    trials = list(gemm.session.store.trials(decision.key))
    return {name: min(t.seconds for t in trials if t.config["variant"] == name) for name in VARIANTS}


def main():
    rng = np.random.default_rng(1)
    print("The best time of each variant; the gain is over naive, the default.")
    print(f"{'M x N x K':>15}", *(f"{name:>10}" for name in VARIANTS), "  gain  chosen")
    for m, n, k in SHAPES:
        a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n)))
        c = np.empty((m, n), dtype=np.float32)

        # A new shape has a new key: the first call with it searches, later ones do not.
        gemm(a, b, c)
        assert np.allclose(c, a @ b, atol=1e-3)

        decision = gemm.decide(a, b, c)
        times = (f"{1e6 * seconds:7.1f} us" for seconds in best_times(decision).values())
        print(f"{f'{m} x {n} x {k}':>15}", *times, f"{decision.evidence.gain:5.1f}x  {decision.config}")
    print(f"measurements {gemm.session.counts['measurements']}")


if __name__ == "__main__":
    main()
