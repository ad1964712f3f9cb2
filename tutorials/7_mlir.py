"""Tutorial 7: write a schedule by hand, then search for a better one.

The payload says what to compute, as linalg on tensors: c = relu(a b). A schedule says how, as steps for the compiler.
Here are three, each with more steps than the one before: tiles; tiles with everything fused into them; the same with
vectors. Then the structure itself is searched, together with its sizes.

`tunewright mlir steps tutorials/7_mlir.py:vectors tutorials/7_mlir.py:payload` shows what each step does; with
`--html steps.html` as a page. This needs the extra `mlir` (see docs/mlir.md).
"""

import os

# One thread for BLAS, as for the others: numpy reads these when it is imported.
os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import time

import numpy as np

import tunewright as tw
from tunewright.mlir import Mlir, payloads
from tunewright.mlir.gemm_plans import gemm_plan
from tunewright.mlir.nest_plans import VECTOR_PATTERNS
from tunewright.mlir.schedule import Schedule

SIZE = 512
payload = payloads.matmul(SIZE, SIZE, SIZE, after="relu")


def tiled():
    """Returns a schedule that computes the product in blocks that fit into a cache."""
    s = Schedule()
    (product,) = s.match("linalg.matmul")
    s.tile(product, [32, 64, 32])
    return s


def fuse_all(rows, columns, terms):
    """Tiles the result, and fuses everything into each tile: zeros, product, relu."""
    s = Schedule()
    (relu,), (product,), (zeros,) = (s.match(f"linalg.{name}") for name in ("generic", "matmul", "fill"))
    relu, (loop,) = s.tile(relu, [rows, columns], "forall")
    product, loop = s.fuse(product, loop)
    zeros, loop = s.fuse(zeros, loop)
    product, _ = s.tile(product, [0, 0, terms])
    return s, relu, product, zeros


def fused():
    s, *_ = fuse_all(32, 64, 32)
    s.cleanup()
    return s


def vectorized():
    """Returns a schedule with unrolled tiles that fit the vector registers; sums stay in registers over k."""
    s, relu, product, zeros = fuse_all(8, 32, 8)
    s.vectorize(product, contraction=True)
    s.vectorize(relu)
    s.vectorize(zeros)
    for patterns in VECTOR_PATTERNS:
        s.cleanup("canonicalization", *patterns)
    s.hoist()
    s.bufferize()
    s.lower()
    return s


tiles, tiles_fused, vectors = tiled(), fused(), vectorized()

# A plan has optional and alternative steps and the sizes that fit: structures are variants of one space.
plan = gemm_plan(payload)
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
    for number in range(11):  # interleaved, CPU time of this thread; the first round builds the schedules
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
