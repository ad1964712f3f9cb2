"""What the drop-in was told is what prebuild takes: targets, and a call from inputs and shapes."""

import json
import subprocess
import sys
from textwrap import dedent

import pytest

PROGRAM = """
import torch
import triton
import triton.language as tl
from tunewright.triton import Config, autotune


def inputs(n):
    return {"grid": (1,), "x": torch.ones(n), "out": torch.zeros(n), "n": n}


@autotune([Config({"BLOCK": 64}, num_warps=2)], ["n"], targets=["sm_90"], inputs=inputs, shapes=[{"n": 100}])
@triton.jit
def copied(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)
"""


@pytest.mark.slow
def test_targets_and_a_call_are_taken_from_the_declaration(tmp_path) -> None:
    (tmp_path / "copied.py").write_text(dedent(PROGRAM))
    command = [sys.executable, "-m", "tunewright", "triton", "prebuild", "copied.py:copied", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["target"], row["keep"]) == ("sm_90", True)
