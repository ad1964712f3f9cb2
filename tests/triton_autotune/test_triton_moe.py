"""Tables of vLLM and SGLang, made of what was decided, and used where it is decided again."""

import json
import subprocess
import sys

import pytest
import torch

import tunewright as tw
from tunewright.interop import moe
from tunewright.testing.triton_driver import H100, FakeDriver, fake_driver
from tunewright.triton import autotune

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def fused_moe(x, out, M, BLOCK_SIZE_M: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    tl.store(out + at, tl.load(x + at, mask=at < M), mask=at < M)
"""


def cost(launch):
    return 1e-5 * (1 + abs(launch.config["BLOCK_SIZE_M"] - 64))


@pytest.mark.slow
def test_a_table_is_made_of_decisions_and_seeds_a_search(written, tmp_path) -> None:
    space = tw.Space(tw.Knob("BLOCK_SIZE_M", [16, 32, 64, 128]), tw.Knob("num_warps", [4, 8]))
    title = "E=8,N=14336,device_name=NVIDIA_H100_80GB_HBM3"
    with fake_driver(FakeDriver(H100, seconds=cost)):
        kernel = autotune(space=space, key=["M"])(written(KERNEL).fused_moe)
        for size in (16, 64, 256):
            kernel[(1,)](torch.ones(size), torch.zeros(size), size)
        command = [sys.executable, "-m", "tunewright", "tables", "export", "fused_moe", str(tmp_path), "--title", title]
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        path = tmp_path / f"{title}.json"
        assert json.loads(done.stdout) == {"file": str(path), "rows": 3}
        assert moe.read(path).nearest(60)[1]["BLOCK_SIZE_M"] == 64
        seeded = autotune(space=space, key=["M"], seeds=moe.seeds(path), budget="2", strategy="random", name="seeded")
        again = seeded(written(KERNEL, name="again").fused_moe)
        again[(1,)](torch.ones(100), torch.zeros(100), 100)
        assert again.best_config.kwargs == {"BLOCK_SIZE_M": 64}
