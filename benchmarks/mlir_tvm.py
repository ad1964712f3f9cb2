"""TVM's side of `mlir.py --peers`: a product with relu by MetaSchedule, in an environment of its own.

    python mlir_tvm.py M N K TRIALS

Says in a line of JSON what tuning took; then, for every line that it is sent, what one more call took.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

os.environ |= {"TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms


def product(m: int, n: int, k: int) -> tvm.IRModule:
    """max(a @ b, 0), as tensor expressions."""
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="c")
    d = te.compute((m, n), lambda i, j: te.max(c[i, j], tvm.tirx.const(0.0, "float32")), name="d")
    return tvm.IRModule({"main": te.create_prim_func([a, b, d])})


def main() -> None:
    """Tune, say what it took, then serve."""
    m, n, k, trials = map(int, sys.argv[1:])
    out, sys.stdout = sys.stdout, sys.stderr  # what TVM says goes elsewhere
    made = product(m, n, k)
    cpu = tvm.get_global_func("target.llvm_get_system_cpu")()
    target = tvm.target.Target({"kind": "llvm", "mcpu": str(cpu), "num-cores": 1})
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        builder = ms.builder.LocalBuilder(timeout_sec=120)  # a busy machine loads TVM for longer than it allows
        wave = min(64, trials)
        found = ms.tune_tir(made, target, folder, trials, num_trials_per_iter=wave, builder=builder, seed=1)
        schedule = ms.tir_integration.compile_tir(found, made, target)
        function = tvm.compile(schedule.mod if schedule else made, target)["main"]
    spent = time.perf_counter() - began
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal(size, dtype=np.float32) for size in ((m, k), (k, n)))
    args = [tvm.runtime.tensor(one) for one in (left, right, np.zeros((m, n), np.float32))]
    function(*args)
    close = np.allclose(args[2].numpy(), np.maximum(left @ right, 0), atol=1e-3)
    print(json.dumps({"tuning_s": spent, "right": bool(close), "found": bool(schedule)}), file=out, flush=True)
    for _ in sys.stdin:
        function(*args)
        start = time.thread_time()
        function(*args)
        print(time.thread_time() - start, file=out, flush=True)


if __name__ == "__main__":
    main()
