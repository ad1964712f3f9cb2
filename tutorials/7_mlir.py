"""Tutorial 7: write the schedule yourself, then let it be searched.

What to compute is said once, as linalg on tensors: c = relu(a b). How, is a schedule: steps that a compiler takes.
Here are three, each with more steps than the one before: tiles; tiles with everything fused into them; and the same
made of vectors. Then the structure itself is searched, together with its sizes.

`tunewright mlir steps tutorials/7_mlir.py:vectors tutorials/7_mlir.py:payload` shows what each step does; with
`--html steps.html` as a page. This needs the extra `mlir` (see docs/mlir.md).
"""

import os

# One thread for BLAS, as for the others: numpy reads these when it is imported.
os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import time

import numpy as np

import tunewright as tw
from tunewright.backends.mlir import Mlir, payloads
from tunewright.backends.mlir.nests import UNITS
from tunewright.backends.mlir.products import product_plan
from tunewright.backends.mlir.steps import Schedule

SIZE = 512
payload = payloads.matmul(SIZE, SIZE, SIZE, after="relu")


def tiled():
    """The product in blocks that fit into a cache."""
    s = Schedule()
    (product,) = s.match("linalg.matmul")
    s.tile(product, [32, 64, 32])
    return s


def fuse_all(rows, columns, terms):
    """Tiles of the result, and in each of them all that it takes: zeros, product, relu."""
    s = Schedule()
    (relu,), (product,), (zeros,) = (s.match(f"linalg.{name}") for name in ("generic", "matmul", "fill"))
    relu, (loop,) = s.tile(relu, [rows, columns], "forall")
    product, loop = s.fuse(product, loop)
    zeros, loop = s.fuse(zeros, loop)
    product, _ = s.tile(product, [0, 0, terms])
    return s, relu, product, zeros


def fused():
    s, *_ = fuse_all(32, 64, 32)
    s.tidy()
    return s


def vectorised():
    """Tiles as large as the vector registers hold, unrolled; sums stay in registers while k passes by."""
    s, relu, product, zeros = fuse_all(8, 32, 8)
    s.vectorise(product, contraction=True)
    s.vectorise(relu)
    s.vectorise(zeros)
    for patterns in UNITS:
        s.tidy("canonicalization", *patterns)
    s.hoist()
    s.bufferise()
    s.lower()
    return s


tiles, tiles_fused, vectors = tiled(), fused(), vectorised()

# A plan knows which steps may be left out or exchanged, and which sizes fit: structures are variants of one space.
plan = product_plan(payload)
one = tw.Space(tw.Knob("schedule", ["as written"]))


def declare(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...


written = {
    name: tw.tune(one, backend=Mlir(payload, schedule), reference=payload.reference, name=f"relu-{name}")(declare)
    for name, schedule in {"tiles": tiles, "tiles, fused": tiles_fused, "tiles, fused, vectors": vectors}.items()
}


@tw.tune(plan.space, backend=Mlir(payload, plan), reference=payload.reference, budget="40")
def relu_product(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...


def main():
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((SIZE, SIZE), dtype=np.float32) for _ in range(2))
    c, d = np.empty((SIZE, SIZE), np.float32), np.empty((SIZE, SIZE), np.float32)

    def blas():
        np.matmul(a, b, out=d)
        np.maximum(d, 0, out=d)

    calls = {name: lambda kernel=kernel: kernel(a, b, c) for name, kernel in written.items()}
    calls |= {"searched, 40 trials": lambda: relu_product(a, b, c), "numpy (OpenBLAS)": blas}
    seconds = {name: [] for name in calls}
    for number in range(11):  # in turn, by the CPU time of this thread; the first round is where schedules are built
        for name, call in calls.items():
            start = time.thread_time()
            call()
            if number:
                seconds[name].append(time.thread_time() - start)
    assert np.allclose(c, d, atol=1e-3)
    for name, found in seconds.items():
        print(f"{name:>22}  {1e3 * np.median(found):7.2f} ms  {2 * SIZE**3 / np.median(found) / 1e9:6.1f} GFLOP/s")
    print(f"found: {relu_product.decide(a, b, c).config}; measurements {relu_product.session.counts['measurements']}")


if __name__ == "__main__":
    main()
