import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tunewright as tw
from tunewright.stores.memory import MemoryStore

PROJECT = Path(__file__).parent.parent.parent
GEMM = PROJECT / "benchmarks" / "kernels" / "gemm.c"
FIXED = "-DVW=8 -DMR=4 -DNR=1 -DNB=64 -DPACK=0 -DUNROLL=1 -DORDER=0 -DPADDED=1"
BLOCKS = tw.Space(tw.Knob("KB", [16, 64]))


@tw.tune(
    BLOCKS,
    backend=tw.C(str(GEMM), flags=f"-O2 -march=native {FIXED}", sizes="arguments"),
    reference=np.matmul,
    invariant=["M"],
    buckets={"M": [8, 64]},
    budget="2",
)
def gemm(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...


def test_rows_of_a_c_kernel_with_blocked_k_are_the_same_bytes_at_every_length() -> None:
    gemm.using(tw.Session(store=MemoryStore(), pool="serial"))
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((64, 100), dtype=np.float32), rng.standard_normal((100, 12), dtype=np.float32)
    whole = np.empty((64, 12), np.float32)
    gemm(a, b, whole)
    for m in range(1, 64):
        c = np.empty((m, 12), np.float32)
        gemm(a[:m], b, c)
        assert c.tobytes() == whole[:m].tobytes(), m
    other = np.empty_like(whole)
    gemm(a, b, other, KB=80 - gemm.decide(a, b, whole).config["KB"])
    assert other.tobytes() != whole.tobytes(), "or there is only one class, and nothing was chosen"


@pytest.mark.slow
def test_the_benchmark_finds_equal_rows_and_the_planted_kernel() -> None:
    run = [sys.executable, "benchmarks/invariance.py", "--quick"]
    assert subprocess.run(run, cwd=PROJECT, check=False).returncode == 0
